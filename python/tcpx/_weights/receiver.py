"""A receiver of a broadcast: reads pieces from the rank before it, and relays them. See `tcpx._weights.chain`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .. import errors
from ..endpoint import Connection
from ..errors import Error, PeerGone, Timeout
from ..slot import Slot
from .chain import BRIEF, LOOK, TICK, Member, Report, cancelled, peer_gone, reason_of, said_in, timed_out
from .manifest import SHORTEST_PIECE, Manifest, Tensor, mismatch
from .relay import Pull, Relay
from .station import Mail

__all__ = ["Receiver"]


class Receiver(Member):
    """A rank whose tensors are written to."""

    def run(self, state: Callable[[], dict[str, Tensor]], source: int) -> Report:
        """The round, from its beginning to its end. `state` gives the tensors, or raises: the others are told then."""
        self.source = source
        self.to: Connection | None = None  # the process of the source, and its round, once heard of
        self._upstream: list[int] = []  # ranks that may be followed, from the source on; the last one is
        self._followed: dict[int, Connection] = {}
        self._lost: set[int] = set()
        self._pull: Pull | None = None
        try:
            offer = self._wait_for_offer()
            return self._move(offer, self._agree(offer, state))
        except BaseException as error:
            if self.to is not None:
                self.station.try_tell(self.to, self.round, "failed", **reason_of(error, self.rank))
            raise
        finally:
            if self.to is not None:
                self.station.end_round(self.to, self.round)
            self._upstream = []  # a thread that still connects follows nobody
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
                    raise self._without_source()
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

    def _agree(self, offer: Mail, state: Callable[[], dict[str, Tensor]]) -> Relay:
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
        relay = self.describe(manifest, tensors)
        self.station.tell(offer.connection, self.round, "here", place=relay.place, table=None)
        return relay

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

    def _without_source(self) -> Error:
        if self.station.group.is_replaced():
            return cancelled(f"another process has joined as rank {self.rank}, in the place of this one")
        here = "" if self.relay is None else f", {self.bytes_in(self.relay.place)} of {self.nbytes} bytes are here"
        return peer_gone(f"rank {self.source}, the source, is gone{here}")

    def _move(self, offer: Mail, relay: Relay) -> Report:
        source = offer.connection
        heard = time.monotonic()
        next_tick, told, whole = 0.0, -1, len(self.pieces)
        for early in self.station.asked(self.round):
            relay.follow(early)
        self._upstream = [self.source, *offer.body["before"]]
        if offer.body["table"] is None or len(self._upstream) > 1:
            self._follow()
        else:
            self._followed[self.source] = source
            self._hear(offer, relay)
            self._advance(source, relay)
        while True:
            for mail in self.station.mail(LOOK):
                if mail.connection is source and mail.kind == "offer":
                    self.station.keep(mail)
                    raise cancelled(f"rank {self.source}, the source, has begun another round")
                if mail.round != self.round:
                    self.station.keep(mail)
                    continue
                if mail.connection is source:
                    heard = time.monotonic()
                    if mail.kind == "abort":
                        raise said_in(mail)
                    if mail.kind == "tick" and mail.body["over"]:
                        return Report(self.nbytes, mail.body["lost"])
                self._handle(mail, mail.connection is source, relay)
            self._advance(source, relay)
            self.say_progress(relay.place)
            now = time.monotonic()
            if relay.place == whole != told or now >= next_tick:
                told, next_tick = relay.place, now + TICK
                self.station.try_tell(source, self.round, "here", place=relay.place, table=None)
            if relay.place == whole and self.station.group.world_size == 2:
                return Report(self.nbytes, ())  # there is nobody else
            gone = self.station.gone({**self._followed, self.source: source})
            if self.source in gone:
                if relay.place == whole:
                    return Report(self.nbytes, ())
                raise self._without_source()
            self._lost.update(gone)
            if now - heard >= self.timeout:
                raise timed_out(f"rank {self.source}, the source, has said nothing for {self.timeout:g} s")

    def _handle(self, mail: Mail, of_source: bool, relay: Relay) -> None:
        body = mail.body
        if mail.kind == "follow":
            relay.follow(mail)
        elif mail.kind == "here" and mail.connection is self._followed.get(self._upstream[-1]):
            self._hear(mail, relay)
        elif mail.kind == "tick" and of_source:
            self._lost.update(body["lost"])
            for rank in body["dropped"]:
                self._drop(rank)
                relay.drop(rank)

    def _hear(self, mail: Mail, relay: Relay) -> None:
        """The rank before this one says how much it has."""
        if self._pull is None and mail.body["table"] is not None:
            layout = self.tensors, self.pieces, relay.place
            self._pull = Pull(mail.rank, mail.connection, mail.body["table"], *layout, self.timeout, self.window)
        if self._pull is not None:
            self._pull.hear(mail.body["place"])

    def _advance(self, source: Connection, relay: Relay) -> None:
        """Reads what the rank before this one has, and follows the one before that when it is lost."""
        why: Error | None = None
        try:
            if self._pull is not None:
                relay.reach(self._pull.advance())
        except Error as error:
            why = error
        while why is not None or self._upstream[-1] in self._lost:
            if len(self._upstream) == 1:
                self._raise_if_told(source)
                raise self._without_source() if why is None or self.station.gone({self.source: source}) else why
            if isinstance(why, (PeerGone, Timeout)):
                self._drop(self._upstream[-1])  # first: what it still sends ends with its connection
            if self._pull is not None:
                self._pull.abandon()
            self._pull = why = None
            self._upstream.pop()
            self._follow()

    def _drop(self, rank: int) -> None:
        connection = self._followed.pop(rank, None)
        if connection is not None:
            self.station.group.drop(rank, connection)

    def _follow(self) -> None:
        rank = self._upstream[-1]
        if rank == self.source:
            self._ask(rank, self.to)
            return
        # On a thread of its own: the newest process of that rank is looked for, and may be ending.
        threading.Thread(target=self._ask, args=(rank, None), name="tcpx-weights", daemon=True).start()

    def _ask(self, rank: int, connection: Connection | None) -> None:
        try:
            if connection is None:
                if not self.station.group.renew(rank):
                    raise peer_gone(f"rank {rank} is gone")
                connection = self.station.group.connection(rank, self.timeout)
            if self._upstream[-1:] == [rank]:
                self._followed[rank] = connection
                self.station.tell(connection, self.round, "follow")
        except Error:
            self._lost.add(rank)

    def end(self) -> None:
        """See `Member.end`."""
        if self._pull is not None:
            self._pull.abandon()
        super().end()
