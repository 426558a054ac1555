"""A receiver of a broadcast: asks the rank before it for pieces, and hands them on. See `tcpx._chain`."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable

from . import errors
from ._chain import LOOK, TICK, Member, Report, peer_gone, said_in, timed_out
from ._feed import Table
from ._manifest import LONGEST_MANIFEST, Manifest, Tensor, total_of
from ._station import Mail
from .errors import Error, Protocol
from .slot import Slot

__all__ = ["Receiver"]


class Receiver(Member):
    """A rank whose tensors are written to."""

    def run(self, state: Callable[[], dict[str, Tensor]], source: int) -> Report:
        """The broadcast, from its offer to its end. `state` gives the tensors, or raises: the others are told then."""
        offer = self._wait_for_offer(source)
        self.source = source
        self.broadcast = offer.broadcast
        self.before: int | None = None
        self.lost: tuple[int, ...] = ()
        self._table: Table | None = None
        self._asked = 0
        self._asking = threading.Lock()
        self._parts: dict[int, int] = {}
        self._arrived: set[int] = set()
        self._place = 0
        try:
            self._agree(offer, state)
            return self._move()
        except BaseException:
            self.station.try_tell(source, self.broadcast, "failed")
            raise
        finally:
            with self._asking:
                self._asked = -1  # a thread that still connects asks for nothing
            self.end()

    def _wait_for_offer(self, source: int) -> Mail:
        deadline = time.monotonic() + self.timeout
        while True:
            waiting = self.station.kept() + self.station.mail(LOOK)
            offers = [one for one in waiting if one.kind == "offer" and one.rank == source]
            chosen = offers[0] if offers else None
            aborted: Mail | None = None
            for mail in waiting:
                if chosen is not None and mail.broadcast == chosen.broadcast:
                    aborted = mail if mail.kind == "abort" else aborted
                elif mail.kind in ("offer", "abort"):
                    self.station.keep(mail)
            if aborted is not None:
                raise said_in(aborted)
            if chosen is not None:
                return chosen
            if source in self.station.gone():
                raise peer_gone(f"rank {source}, the source, is gone")
            if time.monotonic() >= deadline:
                raise timed_out(f"rank {source}, the source, did not begin within {self.timeout:g} s")

    def _agree(self, offer: Mail, state: Callable[[], dict[str, Tensor]]) -> None:
        try:
            connection = self.station.group.connection(self.source)
            slot = Slot.from_bytes(base64.b64decode(offer.body["table"]))
            if slot.nbytes > LONGEST_MANIFEST:
                raise Protocol(f"{Protocol.code}: read a manifest: it has {slot.nbytes} bytes", "", "read a manifest")
            text = bytearray(slot.nbytes)
            connection.read(text, slot, timeout=self.timeout)
            manifest = Manifest.from_bytes(bytes(text))
            tensors = state()
            manifest.compare(tensors, f"rank {self.source}", f"rank {self.rank}")
            for tensor in tensors.values():
                if tensor.readonly:
                    raise errors.invalid("broadcast", f"tensor {tensor.name!r} of rank {self.rank} is read-only")
            self.describe(manifest, tensors)
        except (Error, TypeError) as error:
            code = error.code if isinstance(error, Error) else errors.InvalidArgument.code
            self.station.try_tell(self.source, self.broadcast, "refuse", code=code, text=str(error)[:2000])
            raise
        self.station.tell(self.source, self.broadcast, "ready")

    def _move(self) -> Report:
        heard = time.monotonic()
        next_tick, told = 0.0, -1
        while True:
            for mail in self.station.mail(LOOK):
                if mail.broadcast != self.broadcast:
                    if mail.kind in ("offer", "abort"):
                        self.station.keep(mail)
                    continue
                if mail.rank == self.source:
                    heard = time.monotonic()
                if mail.kind == "end" and mail.rank == self.source:
                    for rank in map(int, mail.body["lost"]):
                        if rank not in self.station.lost:
                            self.station.lose(rank)
                    return Report(self.nbytes, tuple(map(int, mail.body["lost"])))
                self._handle(mail)
            lost = self.advance_feed()
            if lost is not None:
                self.station.try_tell(self.source, self.broadcast, "gone", rank=lost)
            self.say_progress(self._place)
            now = time.monotonic()
            if self._place == self.nbytes != told or now >= next_tick:
                told, next_tick = self._place, now + TICK
                self.station.try_tell(self.source, self.broadcast, "count", nbytes=self._place)
            if self.source in self.station.gone():
                if self._place == self.nbytes and (self.feed is None or self.feed.idle):
                    return Report(self.nbytes, ())  # it has everything, and so has the rank behind
                if self._place < self.nbytes:
                    raise peer_gone(f"rank {self.source}, the source, is gone, {self._place} of {self.nbytes} bytes are here")
            elif now - heard >= self.timeout:
                raise timed_out(f"rank {self.source}, the source, has said nothing for {self.timeout:g} s")

    def _handle(self, mail: Mail) -> None:
        if mail.kind == "abort" and mail.rank == self.source:
            raise said_in(mail)
        if mail.kind == "after" and mail.rank == self.source:
            self._follow(int(mail.body["rank"]), int(mail.body["link"]))
        elif mail.kind == "feed":
            self.begin_feed(mail)
        elif mail.kind == "piece" and mail.rank == self.before:
            self._arrive(int(mail.body["piece"]), int(mail.body["parts"]))

    def _follow(self, rank: int, link: int) -> None:
        """Asks a rank for the pieces that are missing."""
        if self.before is not None and self.before != rank:
            self.station.lose(self.before)  # what it still writes must not come later
        self.before = rank
        self._parts.clear()
        has = base64.b64encode(bytes(piece in self._arrived for piece in range(len(self.pieces)))).decode()
        with self._asking:
            self._asked = link
        # On a thread of its own: that rank may be ending, and the source then names another one.
        threading.Thread(target=self._ask, args=(rank, link, has), name="tcpx-weights", daemon=True).start()

    def _ask(self, rank: int, link: int, has: str) -> None:
        try:
            connection = self.station.group.connection(rank, self.timeout)
            with self._asking:
                if self._asked != link:
                    return
                self._table = table = Table(connection, self.tensors)
            place = base64.b64encode(bytes(table.slot)).decode()
            self.station.tell(rank, self.broadcast, "feed", self.timeout, table=place, has=has, link=link)
        except Error:
            pass  # the source notices that nothing comes, or that the rank is gone

    def _arrive(self, piece: int, parts: int) -> None:
        if not 0 <= piece < len(self.pieces) or piece in self._arrived:
            return
        self._parts[piece] = self._parts.get(piece, 0) + 1
        if self._parts[piece] < parts:
            return
        self._arrived.add(piece)
        self.have.append(piece)
        self._place += total_of(self.pieces[piece])
        if self.feed is not None:
            self.feed.add([piece])

    def end(self) -> None:
        """See `Member.end`."""
        if self._table is not None:
            self._table.withdraw()
        super().end()
