"""The source of a broadcast: says who follows whom, and closes the chain over ranks that are lost. See `tcpx._chain`."""

from __future__ import annotations

import base64
import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from ._chain import BRIEF, LOOK, TICK, Member, Report, peer_gone, reason_of, said_in, timed_out
from ._manifest import Manifest, Tensor
from ._station import Mail
from .connection import Connection
from .errors import Error

__all__ = ["Source"]


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
        self._next_tick = 0.0
        self._reasons: list[str] = []
        try:
            try:
                place = self._prepare(state, piece_bytes)
            except Exception:
                with suppress(Error):
                    self._meet()  # they wait for this rank, and are told why it does not begin
                raise
            self._meet()
            self.chain = [one for one in self.others if one in self.to]
            self.chain = [one for one in self.chain if self.station.try_tell(self.to[one], self.round, "offer", table=place)]
            self.counts = dict.fromkeys(self.chain, -1)
            self.news = dict.fromkeys(self.chain, time.monotonic())
            self._wait_for_all(place)
            for before, rank in zip([self.rank, *self.chain], list(self.chain)):
                self._link(rank, before, False)
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

    def _prepare(self, state: Callable[[], dict[str, Tensor]], piece_bytes: int) -> str:
        """Returns the slot of the manifest, as text."""
        tensors = state()
        manifest = Manifest.of(tensors, piece_bytes)
        text = manifest.to_bytes()
        self.describe(manifest, tensors)
        self.have = list(range(len(self.pieces)))
        slot = self.station.group.endpoint.advertise(ctypes.create_string_buffer(text, len(text)))  # ends when nobody keeps the slot
        self.station.offered.append(slot)
        return base64.b64encode(bytes(slot)).decode()

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

    def _wait_for_all(self, place: str) -> None:
        waited = set(self.chain)
        while waited := waited & set(self.chain):
            for mail in self._mail():
                if mail.kind == "ready":
                    waited.discard(mail.rank)
                    self.counts[mail.rank] = 0
                elif mail.kind == "failed":
                    raise said_in(mail)
            for rank in self.station.gone({rank: self.to[rank] for rank in self.chain}):
                again = self.station.reach(rank, self.round, "offer", min(self._left(), BRIEF), table=place)
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
            for mail in self._mail():
                if mail.kind == "feed" and self.chain and mail.rank == self.chain[0]:
                    self.begin_feed(mail)
                elif mail.kind == "count":
                    self._count(mail.rank, mail.body["nbytes"])
                elif mail.kind == "gone":
                    self._lose(mail.body["rank"])
                elif mail.kind == "failed":
                    self._reasons.append(str(said_in(mail)))
                    self._lose(mail.rank, alive=True)
            lost = self.advance_feed()
            if lost is not None:
                self._lose(lost)
            for rank in self.station.gone({rank: self.to[rank] for rank in self.chain}):
                self._lose(rank)
            self._lose_the_silent()
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

    def _link(self, rank: int, before: int, dropped: bool) -> None:
        self.news[rank] = time.monotonic()
        self._links += 1
        self.station.try_tell(self.to[rank], self.round, "after", rank=before, link=self._links, dropped=dropped)

    def _lose(self, rank: int, alive: bool = False) -> None:
        """Closes the chain over a rank. alive: it has given up, and may take part in the next round."""
        if rank not in self.chain:
            return
        place = self.chain.index(rank)
        self.chain.remove(rank)
        reason = reason_of(peer_gone(f"rank {rank} was taken out of the chain"), self.rank)
        self.station.try_tell(self.to[rank], self.round, "abort", **reason)
        if self.feed is not None and self.feed.rank == rank:
            self.drop_feed(lost=not alive)
        if not alive:
            self.station.group.drop(rank, self.to[rank])
        if place < len(self.chain):
            self._link(self.chain[place], self.chain[place - 1] if place else self.rank, not alive)

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
