"""A receiver of a broadcast: asks the rank before it for pieces, and hands them on. See `tcpx._weights.chain`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .. import errors
from ..endpoint import Connection
from ..errors import Error
from ..slot import Slot
from .chain import BRIEF, LOOK, TICK, Member, Report, cancelled, peer_gone, reason_of, said_in, timed_out
from .feed import Table
from .foreign import text_of
from .manifest import SHORTEST_PIECE, Manifest, Tensor, mismatch, total_of
from .station import SHORT, Mail

__all__ = ["Receiver"]


class Receiver(Member):
    """A rank whose tensors are written to."""

    def run(self, state: Callable[[], dict[str, Tensor]], source: int) -> Report:
        """The round, from its beginning to its end. `state` gives the tensors, or raises: the others are told then."""
        self.source = source
        self.to: Connection | None = None  # the process of the source, and its round, once heard of
        self.before: int | None = None
        self._connection_before: Connection | None = None
        self._table: Table | None = None
        self._asked = 0
        self._asking = threading.Lock()
        self._parts: dict[int, int] = {}
        self._arrived: set[int] = set()
        self._place = 0
        try:
            offer = self._wait_for_offer()
            self._agree(offer, state)
            return self._move(offer.connection)
        except BaseException as error:
            if self.to is not None:
                self.station.try_tell(self.to, self.round, "failed", **reason_of(error, self.rank))
            raise
        finally:
            if self.to is not None:
                self.station.end_round(self.to, self.round)
            with self._asking:
                self._asked = -1  # a thread that still connects asks for nothing
            self.end()

    def _wait_for_offer(self) -> Mail:
        """The offer of the oldest round of the source that this rank has not seen the end of; raises why there is none."""
        deadline = time.monotonic() + self.timeout
        while True:
            heard = self.round
            if (offer := self._heard([*self.station.kept(), *self.station.mail(LOOK)])) is not None:
                return offer
            if self.round != heard:  # it waits for others, for as long as this rank does, and then says for whom
                deadline = time.monotonic() + self.timeout + BRIEF
            group = self.station.group
            connection = group.connected().get(self.source)
            if connection is not None and self.station.gone({self.source: connection}):
                if not group.joined_anew(self.source) and group.connected().get(self.source) is connection:
                    raise self._without_source("")
                group.renew(self.source)
            if time.monotonic() >= deadline:
                raise timed_out(f"rank {self.source}, the source, did not begin within {self.timeout:g} s")

    def _heard(self, mails: list[Mail]) -> Mail | None:
        now = self.station.group.connected().get(self.source)
        mine = [one for one in mails if one.connection is now and one.kind in ("tick", "offer", "abort")]
        for mail in mails:
            if mail not in mine:
                self.station.keep(mail)
        for number in sorted({one.round for one in mine}):
            its = [one for one in mine if one.round == number]
            later = [one for one in mine if one.round > number]
            self.to, self.round = now, number
            for mail in its:
                if mail.kind == "abort":
                    for other in later:
                        self.station.keep(other)
                    raise said_in(mail)
            if not later:  # else the source has left that round without a word
                return next((one for one in its if one.kind == "offer"), None)
        return None

    def _agree(self, offer: Mail, state: Callable[[], dict[str, Tensor]]) -> None:
        tensors = state()
        said: memoryview | Slot = offer.body["manifest"]
        most = Manifest.of(tensors, SHORTEST_PIECE).most_bytes()
        if said.nbytes > most:
            text = f"rank {self.source} describes its tensors in {said.nbytes} bytes, those of rank {self.rank} take {most} at most"
            raise mismatch(text)
        manifest = Manifest.from_bytes(bytes(self._read(said, offer.connection) if isinstance(said, Slot) else said))
        manifest.compare(tensors, f"rank {self.source}", f"rank {self.rank}")
        for tensor in tensors.values():
            if tensor.readonly:
                raise errors.invalid("broadcast", f"tensor {tensor.name!r} of rank {self.rank} is read-only")
        self.describe(manifest, tensors)
        self.station.tell(offer.connection, self.round, "ready")
        self._follow(offer.body["rank"], offer.body["link"], False)

    def _read(self, slot: Slot, source: Connection) -> bytearray:
        data = bytearray(slot.nbytes)
        try:
            source.read(data, slot, timeout=self.timeout)
        except Error:
            self._raise_if_told(source)
            raise
        return data

    def _raise_if_told(self, source: Connection) -> None:
        """The source, which has gone on, has said why."""
        deadline = time.monotonic() + BRIEF
        while (left := deadline - time.monotonic()) > 0 and not self.station.gone({self.source: source}):
            for mail in self.station.mail(min(left, LOOK)):
                if mail.kind == "abort" and mail.connection is source and mail.round == self.round:
                    raise said_in(mail)
                self.station.keep(mail)

    def _without_source(self, text: str) -> Error:
        if self.station.group.is_replaced():
            return cancelled(f"another process has joined as rank {self.rank}, in the place of this one")
        return peer_gone(f"rank {self.source}, the source, is gone{text}")

    def _move(self, source: Connection) -> Report:
        heard = time.monotonic()
        next_tick, told = 0.0, -1
        for early in self.station.asked(self.round):
            self.begin_feed(early)
        while True:
            if self.advance_feed() is not None:
                self.station.try_tell(source, self.round, "gone", link=self.link)
            for mail in self.station.mail(LOOK):
                if mail.connection is source and mail.kind == "offer":
                    self.station.keep(mail)
                    raise cancelled(f"rank {self.source}, the source, has begun another round")
                if mail.round != self.round:
                    self.station.keep(mail)
                    continue
                if mail.connection is source:
                    heard = time.monotonic()
                    if mail.kind == "end":
                        return Report(self.nbytes, mail.body["lost"])
                self._handle(mail, mail.connection is source)
            self.say_progress(self._place)
            now = time.monotonic()
            if self._place == self.nbytes != told or now >= next_tick:
                told, next_tick = self._place, now + TICK
                self.station.try_tell(source, self.round, "count", nbytes=self._place)
            if self.station.gone({self.source: source}):
                if self._place == self.nbytes and (self.feed is None or self.feed.idle):
                    return Report(self.nbytes, ())  # it has everything, and so has the rank behind
                if self._place < self.nbytes:
                    raise self._without_source(f", {self._place} of {self.nbytes} bytes are here")
            elif now - heard >= self.timeout:
                raise timed_out(f"rank {self.source}, the source, has said nothing for {self.timeout:g} s")

    def _handle(self, mail: Mail, of_source: bool) -> None:
        body = mail.body
        if mail.kind == "abort" and of_source:
            raise said_in(mail)
        if mail.kind == "after" and of_source:
            self._follow(body["rank"], body["link"], body["dropped"])
        elif mail.kind == "feed":
            self.begin_feed(mail)
        elif mail.kind == "piece" and mail.rank == self.before:
            self._arrive(body["piece"], body["parts"])

    def _follow(self, rank: int, link: int, dropped: bool) -> None:
        """Asks a rank for the pieces that are missing."""
        with self._asking:
            self._asked = link
        if self.before is not None and self._connection_before is not None and dropped:
            self.station.group.drop(self.before, self._connection_before)  # what it still writes must not come later
        self.before = rank
        self._parts.clear()
        has = bytes(piece in self._arrived for piece in range(len(self.pieces)))
        if rank == self.source:
            self._ask(rank, link, has, self.to)
            return
        # On a thread of its own: the newest process of that rank is looked for, and may be ending. Then the source names another rank.
        threading.Thread(target=self._ask, args=(rank, link, has, None), name="tcpx-weights", daemon=True).start()

    def _ask(self, rank: int, link: int, has: bytes, connection: Connection | None) -> None:
        try:
            if connection is None:
                self.station.group.renew(rank)
                connection = self.station.group.connection(rank, self.timeout)
            with self._asking:
                if self._asked != link:
                    return
                self._connection_before = connection
                self._table = table = Table(connection, self.tensors, SHORT - len(has))
            self.station.tell(connection, self.round, "feed", table=table.parcel.said, has=text_of(has), link=link)
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
