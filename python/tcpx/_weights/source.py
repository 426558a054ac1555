"""The source of a broadcast: says who is in the chain, and that it goes on without ranks that are lost. See `tcpx._weights.chain`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ..endpoint import Connection
from ..errors import Error
from .chain import BRIEF, LOOK, TICK, Member, Report, peer_gone, reason_of, said_in, timed_out
from .manifest import Manifest, Tensor, piece_of
from .relay import Relay
from .station import Mail, Parcel

__all__ = ["Source"]


class Source(Member):
    """The rank whose tensors everybody gets."""

    def run(self, state: Callable[[], dict[str, Tensor]], piece_bytes: int | None) -> Report:
        """The round, from its beginning to its end. `state` gives the tensors, or raises: the others are told then."""
        world_size = self.station.group.world_size
        self.round = self.station.begin_round()
        self.others = [(self.rank + step) % world_size for step in range(1, world_size)]
        self.to: dict[int, Connection] = {}  # whom it has met, by rank; those of `chain` take part
        self.chain: list[int] = []
        self._begin = time.monotonic()
        self.counts: dict[int, int] = {}  # pieces in place; -1: not ready
        self.news: dict[int, float] = {}
        self._dropped: set[int] = set()
        self._renewed: set[int] = set()  # ranks that others may have followed as the process before: they follow none of these
        self._next_tick = 0.0
        self._reasons: list[str] = []
        try:
            try:
                manifest, relay = self._prepare(state, piece_bytes)
            except Exception:
                with suppress(Error):
                    self._meet()  # they wait for this rank, and are told why it does not begin
                raise
            self._meet()
            if len(self.to) == 1:
                relay.reach(len(self.pieces))  # it waits for nobody else's tensors
            for rank in [one for one in self.others if one in self.to]:
                if self.station.try_tell(self.to[rank], self.round, "offer", **self._offer(manifest, relay, self.chain)):
                    self._lead(relay, rank, self.chain)
                    self.chain.append(rank)
            self.counts = dict.fromkeys(self.chain, -1)
            self._wait_for_all(manifest, relay)
            self.news = dict.fromkeys(self.chain, time.monotonic())
            relay.reach(len(self.pieces))
            self._move(relay)
            lost = self._lost()
            if self.others and not self.chain:
                raise peer_gone("; ".join([f"every receiver is lost: ranks {list(lost)}", *self._reasons]))
            self._tell_news(over=True)
            return Report(self.nbytes, lost)
        except BaseException as error:
            self._tell_all(error)
            raise
        finally:
            self.end()

    def _prepare(self, state: Callable[[], dict[str, Tensor]], piece_bytes: int | None) -> tuple[Parcel, Relay]:
        """Returns the manifest, and the tensors as the others read them."""
        tensors = state()
        nbytes = sum(one.nbytes for one in tensors.values())
        manifest = Manifest.of(tensors, piece_bytes or piece_of(nbytes, len(self.others)))
        data = manifest.to_bytes()
        relay = self.describe(manifest, tensors)
        parcel = Parcel(data, self.station.group.endpoint)
        self.station.offered.append(parcel)
        return parcel, relay

    def _left(self) -> float:
        return max(0.0, self._begin + self.timeout - time.monotonic())

    def _meet(self) -> None:
        """All are there before the first is asked to wait for the others; those who have joined already hear first."""
        group = self.station.group
        there = {one for one in self.others if one in group.connected() or group.joined_anew(one)}
        for rank in sorted(self.others, key=lambda one: one not in there):
            connection = self.station.reach(rank, self.round, "tick", self._left(), lost=(), dropped=(), over=False)
            if connection is not None:
                self.to[rank] = connection

    def _offer(self, manifest: Parcel, relay: Relay, before: list[int]) -> dict[str, Any]:
        return {"manifest": manifest.said, "before": before, **({"place": 0, "table": None} if before else relay.said())}

    def _lead(self, relay: Relay, rank: int, before: list[int]) -> None:
        if not before:
            relay.lead(rank, self.to[rank])

    def _wait_for_all(self, manifest: Parcel, relay: Relay) -> None:
        waited = set(self.chain)
        while waited := waited & set(self.chain):
            gone = self._gone()
            for mail in self._mail(gone):
                if mail.kind == "here":
                    waited.discard(mail.rank)
                    self._count(mail.rank, mail.body["place"])
                elif mail.kind == "failed":
                    raise said_in(mail)
                elif mail.kind == "follow":
                    relay.follow(mail)
            for rank in gone:
                if self._may_leave(rank):
                    continue
                before = self.chain[: self.chain.index(rank)]
                offer = self._offer(manifest, relay, before)
                again = self.station.reach(rank, self.round, "offer", min(self._left(), BRIEF), **offer)
                self._tick()  # the others take a silence of all that time for this one's end
                if again is None:
                    self._lose(rank)
                else:  # another process has joined as that rank
                    self.to[rank] = again
                    self.counts[rank] = -1
                    self._lead(relay, rank, before)
                    waited.add(rank)
                    self._renewed.add(rank)
            self._tick()
            if self._left() == 0 and waited:
                raise timed_out(f"ranks {sorted(waited)} did not begin within {self.timeout:g} s")

    def _move(self, relay: Relay) -> None:
        while any(self.counts[rank] < len(self.pieces) for rank in self.chain):
            gone = self._gone()
            for mail in self._mail(gone):
                if mail.kind == "here":
                    self._count(mail.rank, mail.body["place"])
                elif mail.kind == "failed":
                    self._reasons.append(str(said_in(mail)))
                    self._lose(mail.rank, alive=True)
                elif mail.kind == "follow":
                    relay.follow(mail)
            for rank in gone:
                if not self._may_leave(rank):
                    self._lose(rank)
            self._lose_the_silent()
            self._say_slowest()
            self._tick()
        self._say_slowest()  # they may have had all before

    def _gone(self) -> set[int]:
        """Ranks of the chain that are gone. Ask before the mail is read: what they have said before counts."""
        return self.station.gone({rank: self.to[rank] for rank in self.chain})

    def _may_leave(self, rank: int) -> bool:
        """A single receiver that has everything."""
        return len(self.others) == 1 and self.counts[rank] == len(self.pieces)

    def _say_slowest(self) -> None:
        if self.chain:
            self.say_progress(max(0, min(self.counts[rank] for rank in self.chain)))

    def _tick(self) -> None:
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + TICK
            self._tell_news()

    def _tell_news(self, over: bool = False) -> None:
        lost = self._lost() if over else (*self._lost(), *self._renewed)
        for rank in self.chain:
            told = {"lost": lost, "dropped": tuple(self._dropped), "over": over}
            self.station.try_tell(self.to[rank], self.round, "tick", **told)

    def _lost(self) -> tuple[int, ...]:
        return tuple(one for one in self.others if one not in self.chain)

    def _mail(self, gone: set[int]) -> Iterator[Mail]:
        """Of the processes in the chain, about this round. Waits for some, unless ranks are gone."""
        for mail in self.station.mail(0 if gone else LOOK):
            if mail.round == self.round and mail.rank in self.chain and self.to[mail.rank] is mail.connection:
                yield mail
            else:
                self.station.keep(mail)

    def _count(self, rank: int, place: int) -> None:
        if self.counts[rank] < place <= len(self.pieces):
            self.counts[rank] = place
            self.news[rank] = time.monotonic()

    def _lose(self, rank: int, alive: bool = False) -> None:
        """Takes a rank out of the chain. alive: it has given up, and may take part in the next round."""
        if rank not in self.chain:
            return
        # The ranks behind it have waited for it, so their time begins anew.
        self.news |= dict.fromkeys(self.chain[self.chain.index(rank) + 1 :], time.monotonic())
        self.chain.remove(rank)
        reason = reason_of(peer_gone(f"rank {rank} was taken out of the chain"), self.rank)
        self.station.try_tell(self.to[rank], self.round, "abort", **reason)
        if not alive:
            self._dropped.add(rank)
            self.station.group.drop(rank, self.to[rank])
        self._next_tick = 0.0  # the others hear of it at once

    def _lose_the_silent(self) -> None:
        """The first rank that has not all, and gets nothing more: the ranks before it have all."""
        for rank in self.chain:
            if self.counts[rank] < len(self.pieces):
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
