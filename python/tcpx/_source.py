"""The source of a broadcast: says who follows whom, and closes the chain over ranks that are lost. See `tcpx._chain`."""

from __future__ import annotations

import base64
import ctypes
import random
import time

from ._chain import LOOK, TICK, Member, Report, peer_gone, said_in, timed_out
from ._manifest import Manifest, Tensor
from ._station import Mail
from .errors import Cancelled, Error, PeerGone

__all__ = ["Source"]


class Source(Member):
    """The rank whose tensors everybody gets."""

    def run(self, tensors: dict[str, Tensor], piece_bytes: int) -> Report:
        """The broadcast, from its offer to its end."""
        group = self.station.group
        self.broadcast = random.getrandbits(63)
        others = [(self.rank + step) % group.world_size for step in range(1, group.world_size)]
        try:
            manifest = Manifest.of(tensors, piece_bytes)
            text = manifest.to_bytes()
            self.describe(manifest, tensors)
            self.have = list(range(len(self.pieces)))
            slot = group.endpoint.advertise(ctypes.create_string_buffer(text, len(text)))  # ends when nobody keeps the slot
            self.station.offered.append(slot)
            place = base64.b64encode(bytes(slot)).decode()
            begin = time.monotonic()
            self._links = 0
            self._next_tick = 0.0
            # All are there before the first is asked to wait for the others.
            self.chain = [one for one in others if self.station.reach(one, self.broadcast, "tick", self._left(begin))]
            self.chain = [one for one in self.chain if self.station.try_tell(one, self.broadcast, "offer", table=place)]
            self.counts = dict.fromkeys(self.chain, -1)
            self.news = dict.fromkeys(self.chain, time.monotonic())
            self._wait_for_all(begin)
            for before, rank in zip([self.rank, *self.chain], list(self.chain)):
                self._link(rank, before)
            self._move()
            lost = tuple(one for one in others if one not in self.chain)
            if others and not self.chain:
                raise peer_gone(f"every receiver is lost: ranks {list(lost)}")
            for rank in self.chain:
                self.station.try_tell(rank, self.broadcast, "end", lost=lost)
            return Report(self.nbytes, lost)
        except BaseException as error:
            code = error.code if isinstance(error, Error) else Cancelled.code
            for rank in others:
                if rank not in self.station.lost and rank not in self.station.gone():
                    self.station.try_tell(rank, self.broadcast, "abort", code=code, text=f"rank {self.rank}: {error}"[:2000])
            raise
        finally:
            self.end()

    def _left(self, begin: float) -> float:
        return max(0.0, begin + self.timeout - time.monotonic())

    def _wait_for_all(self, begin: float) -> None:
        waited = set(self.chain)
        while waited := waited & set(self.chain):
            for mail in self._mail():
                if mail.kind == "ready":
                    waited.discard(mail.rank)
                    self.counts[mail.rank] = 0
                elif mail.kind == "refuse":
                    raise said_in(mail)
            for rank in self.station.gone() & waited:
                self._lose(rank)
            self._tick()
            if self._left(begin) == 0 and waited:
                raise timed_out(f"ranks {sorted(waited)} did not begin within {self.timeout:g} s")

    def _move(self) -> None:
        while any(self.counts[rank] < self.nbytes for rank in self.chain):
            for mail in self._mail():
                if mail.kind == "feed" and self.chain and mail.rank == self.chain[0]:
                    self.begin_feed(mail)
                elif mail.kind == "count" and mail.rank in self.counts:
                    self._count(mail.rank, int(mail.body["nbytes"]))
                elif mail.kind == "gone" and mail.rank in self.chain:
                    self._lose(int(mail.body["rank"]))
                elif mail.kind == "failed":
                    self._lose(mail.rank)
            lost = self.advance_feed()
            if lost is not None:
                self._lose(lost)
            for rank in self.station.gone():
                self._lose(rank)
            self._lose_the_silent()
            if self.chain:
                self.say_progress(max(0, min(self.counts[rank] for rank in self.chain)))
            self._tick()

    def _tick(self) -> None:
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + TICK
            for rank in self.chain:
                self.station.try_tell(rank, self.broadcast, "tick")

    def _mail(self) -> list[Mail]:
        found = []
        for mail in self.station.mail(LOOK):
            if mail.broadcast == self.broadcast:
                found.append(mail)
            elif mail.kind in ("offer", "abort"):
                self.station.keep(mail)
        return found

    def _count(self, rank: int, nbytes: int) -> None:
        if nbytes > self.counts[rank]:
            self.counts[rank] = nbytes
            self.news[rank] = time.monotonic()

    def _link(self, rank: int, before: int) -> None:
        self.news[rank] = time.monotonic()
        self._links += 1
        self.station.try_tell(rank, self.broadcast, "after", rank=before, link=self._links)

    def _lose(self, rank: int) -> None:
        """Closes the chain over a rank."""
        if rank not in self.chain:
            return
        place = self.chain.index(rank)
        self.chain.remove(rank)
        self.station.try_tell(rank, self.broadcast, "abort", code=PeerGone.code, text=f"rank {rank} was taken out of the chain")
        if self.feed is not None and self.feed.rank == rank:
            self.drop_feed()
        self.station.lose(rank)
        if place < len(self.chain):
            self._link(self.chain[place], self.chain[place - 1] if place else self.rank)

    def _lose_the_silent(self) -> None:
        """The first rank that has not all, and gets nothing more: the ranks before it have all."""
        for rank in self.chain:
            if self.counts[rank] < self.nbytes:
                if time.monotonic() - self.news[rank] >= self.timeout:
                    self._lose(rank)
                return
