"""The source of a broadcast: says who follows whom, and closes the chain over ranks that are lost. See `tcpx._weights.chain`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from ..endpoint import Connection
from ..errors import Error
from .chain import BRIEF, LOOK, TICK, Member, Report, peer_gone, reason_of, said_in, timed_out
from .manifest import Manifest, Tensor
from .station import Mail, Parcel

__all__ = ["Source"]


class _Link(NamedTuple):
    """What a rank knows of the process before it: its rank, its connection from here (None: this process), the link's number."""

    before: int
    connection: Connection | None
    number: int


class Source(Member):
    """The rank whose tensors everybody gets."""

    def run(self, state: Callable[[], dict[str, Tensor]], piece_bytes: int) -> Report:
        """The round, from its beginning to its end. `state` gives the tensors, or raises: the others are told then."""
        world_size = self.station.group.world_size
        self.round = self.station.begin_round()
        self.others = [(self.rank + step) % world_size for step in range(1, world_size)]
        self.to: dict[int, Connection] = {}  # whom it has met, by rank; those of `chain` take part
        self.chain: list[int] = []
        self._begin = time.monotonic()
        self._links = 0
        self._told: dict[int, _Link] = {}
        self._dropped: set[int] = set()
        self._next_tick = 0.0
        self._reasons: list[str] = []
        try:
            try:
                manifest = self._prepare(state, piece_bytes)
            except Exception:
                with suppress(Error):
                    self._meet()  # they wait for this rank, and are told why it does not begin
                raise
            self._meet()
            for rank in [one for one in self.others if one in self.to]:
                link = self._next_link(rank, self.chain[-1] if self.chain else self.rank)
                if self.station.try_tell(self.to[rank], self.round, "offer", manifest=manifest.said, **link):
                    self.chain.append(rank)
            self.counts = dict.fromkeys(self.chain, -1)
            self._wait_for_all(manifest)
            self.news = dict.fromkeys(self.chain, time.monotonic())
            self._move()
            lost = tuple(one for one in self.others if one not in self.chain)
            if self.others and not self.chain:
                raise peer_gone("; ".join([f"every receiver is lost: ranks {list(lost)}", *self._reasons]))
            for rank in self.chain:
                self.station.try_tell(self.to[rank], self.round, "end", lost=lost)
            return Report(self.nbytes, lost)
        except BaseException as error:
            self._tell_all(error)
            raise
        finally:
            self.end()

    def _prepare(self, state: Callable[[], dict[str, Tensor]], piece_bytes: int) -> Parcel:
        """Returns the manifest."""
        tensors = state()
        manifest = Manifest.of(tensors, piece_bytes)
        data = manifest.to_bytes()
        self.describe(manifest, tensors)
        self.have = list(range(len(self.pieces)))
        parcel = Parcel(data, self.station.group.endpoint)
        self.station.offered.append(parcel)
        return parcel

    def _left(self) -> float:
        return max(0.0, self._begin + self.timeout - time.monotonic())

    def _meet(self) -> None:
        """All are there before the first is asked to wait for the others; those who have joined already hear first."""
        group = self.station.group
        there = {one for one in self.others if one in group.connected() or group.joined_anew(one)}
        for rank in sorted(self.others, key=lambda one: one not in there):
            connection = self.station.reach(rank, self.round, "tick", self._left())
            if connection is not None:
                self.to[rank] = connection

    def _wait_for_all(self, manifest: Parcel) -> None:
        waited = set(self.chain)
        while waited := waited & set(self.chain):
            for mail in self._mail():
                if mail.kind == "ready":
                    waited.discard(mail.rank)
                    self.counts[mail.rank] = 0
                elif mail.kind == "failed":
                    raise said_in(mail)
                else:
                    self._handle(mail)
            for rank in self.station.gone({rank: self.to[rank] for rank in self.chain}):
                link = self._next_link(rank, self._before(rank))
                again = self.station.reach(rank, self.round, "offer", min(self._left(), BRIEF), manifest=manifest.said, **link)
                self._tick()  # the others take a silence of all that time for this one's end
                if again is None:
                    self._lose(rank)
                else:  # another process has joined as that rank
                    self.to[rank] = again
                    waited.add(rank)
            self._tick()
            if self._left() == 0 and waited:
                raise timed_out(f"ranks {sorted(waited)} did not begin within {self.timeout:g} s")

    def _move(self) -> None:
        while any(self.counts[rank] < self.nbytes for rank in self.chain):
            lost = self.advance_feed()
            if lost is not None:
                self._lose(lost)
            for rank in self.station.gone({rank: self.to[rank] for rank in self.chain}):
                self._lose(rank)
            self._link()  # before the silent are looked for: who follows another rank now has time again
            self._lose_the_silent()
            for mail in self._mail():
                if mail.kind == "count":
                    self._count(mail.rank, mail.body["nbytes"])
                elif mail.kind == "failed":
                    self._reasons.append(str(said_in(mail)))
                    self._lose(mail.rank, alive=True)
                else:
                    self._handle(mail)
            if self.chain:
                self.say_progress(max(0, min(self.counts[rank] for rank in self.chain)))
            self._tick()

    def _tick(self) -> None:
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + TICK
            for rank in self.chain:
                self.station.try_tell(self.to[rank], self.round, "tick")

    def _mail(self) -> Iterator[Mail]:
        """Of the processes in the chain, about this round."""
        for mail in self.station.mail(LOOK):
            if mail.round == self.round and mail.rank in self.chain and self.to[mail.rank] is mail.connection:
                yield mail
            else:
                self.station.keep(mail)

    def _count(self, rank: int, nbytes: int) -> None:
        if nbytes > self.counts[rank]:
            self.counts[rank] = nbytes
            self.news[rank] = time.monotonic()

    def _handle(self, mail: Mail) -> None:
        """What may come before all are ready, too. Nothing moves before `_move` advances the feed."""
        if mail.kind == "feed" and self.chain and mail.rank == self.chain[0]:
            self.begin_feed(mail)
        elif mail.kind == "gone":
            for rank in [one for one in self.chain if self._told[one].number == mail.body["link"]]:
                self._lose(rank)

    def _before(self, rank: int) -> int:
        return [self.rank, *self.chain][self.chain.index(rank)]

    def _next_link(self, rank: int, before: int) -> dict[str, Any]:
        """What a rank is told of the one before it, from now on."""
        self._links += 1
        self._told[rank] = _Link(before, self.to.get(before), self._links)
        return {"rank": before, "link": self._links}

    def _link(self) -> None:
        """Tells those in the chain that have another process before them than they know of."""
        for rank in self.chain:
            before, known = self._before(rank), self._told[rank]
            if (known.before, known.connection) != (before, self.to.get(before)):
                self.news[rank] = time.monotonic()
                dropped = known.before in self._dropped
                self.station.try_tell(self.to[rank], self.round, "after", dropped=dropped, **self._next_link(rank, before))

    def _lose(self, rank: int, alive: bool = False) -> None:
        """Takes a rank out of the chain, which `_link` closes. alive: it has given up, and may take part in the next round."""
        if rank not in self.chain:
            return
        self.chain.remove(rank)
        reason = reason_of(peer_gone(f"rank {rank} was taken out of the chain"), self.rank)
        self.station.try_tell(self.to[rank], self.round, "abort", **reason)
        if self.feed is not None and self.feed.rank == rank:
            self.drop_feed(lost=not alive)
        if not alive:
            self._dropped.add(rank)
            self.station.group.drop(rank, self.to[rank])

    def _lose_the_silent(self) -> None:
        """The first rank that has not all, and gets nothing more: the ranks before it have all."""
        for rank in self.chain:
            if self.counts[rank] < self.nbytes:
                if time.monotonic() - self.news[rank] >= self.timeout:
                    self._lose(rank)
                return

    def _tell_all(self, error: BaseException) -> None:
        """Those it has met, and then those that may have joined meanwhile, unless whoever pressed a key waits."""
        reason = reason_of(error, self.rank)
        for connection in self.to.values():
            self.station.try_tell(connection, self.round, "abort", **reason)
        deadline = time.monotonic() + BRIEF
        for rank in [one for one in self.others if one not in self.to and isinstance(error, Exception)]:
            left = deadline - time.monotonic()
            if left > 0 and self.station.group.joined_anew(rank):
                with suppress(Error):
                    self.station.tell(self.station.group.connection(rank, left), self.round, "abort", **reason)
