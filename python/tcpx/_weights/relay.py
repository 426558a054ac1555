"""The hop of a chain: what a rank has of the tensors, for the ranks behind it to read, and how it reads from the one before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from ..endpoint import Connection
from ..errors import Protocol
from ..operation import Operation
from ..slot import Slot
from .foreign import reading
from .manifest import Tensor
from .reads import abandon, register, start_reads
from .station import Mail, Parcel, Station

__all__ = ["Pull", "Relay"]

Pieces = Sequence[Sequence[tuple[int, int, int]]]

_SLOT_BYTES = 64
_ROW_BYTES = 1 + _SLOT_BYTES  # whether it is a GPU's memory, and its slot


class Relay:
    """Tensors that other ranks read in a round, piece by piece: the first `place` pieces are there.

    number: of the round. Whoever follows is told of each change of `place`.
    """

    def __init__(self, station: Station, number: int, tensors: Sequence[Tensor]) -> None:
        self.place = 0
        self._station = station
        self._round = number
        self._followers: dict[int, Connection] = {}
        endpoint = station.group.endpoint
        self._registrations = register(endpoint, tensors)
        self._slots = [endpoint.advertise(one.bytes(), access="read") if one.nbytes else None for one in tensors]
        rows = [
            bytes([one.gpu]) + (bytes(_SLOT_BYTES) if slot is None else bytes(slot)[:_SLOT_BYTES])
            for one, slot in zip(tensors, self._slots)
        ]
        self._table = Parcel(b"".join(rows), endpoint)

    def said(self) -> dict[str, Any]:
        """The part of a message that tells a rank how to read from this one."""
        return {"place": self.place, "table": self._table.said}

    def lead(self, rank: int, connection: Connection) -> None:
        """A rank reads from this one from now on."""
        self._followers[rank] = connection

    def follow(self, mail: Mail) -> None:
        """A rank asks to read from this one."""
        self.lead(mail.rank, mail.connection)
        self._station.try_tell(mail.connection, self._round, "here", **self.said())

    def reach(self, place: int) -> None:
        """So many pieces are there."""
        if place != self.place:
            self.place = place
            for connection in self._followers.values():
                self._station.try_tell(connection, self._round, "here", place=place, table=None)

    def drop(self, rank: int) -> None:
        """Ends what a rank that is lost may still be reading."""
        connection = self._followers.pop(rank, None)
        if connection is not None:
            self._station.group.drop(rank, connection)

    def end(self, timeout: float) -> None:
        """Nobody reads the tensors any more when it returns. timeout: seconds for a rank that reads and is silent."""
        for slot in (self._table.slot, *self._slots):
            if slot is not None:
                slot.withdraw()
        for registration in self._registrations:
            registration.release(timeout)


class Pull:
    """Reads pieces from the rank before this one in their order, some at a time. `advance` raises `tcpx.Error`; `abandon` it then.

    table: of the slots of that rank, or where it is. place: pieces that are here already. window: pieces under way at once.
    """

    def __init__(
        self,
        rank: int,
        connection: Connection,
        table: memoryview | Slot,
        tensors: Sequence[Tensor],
        pieces: Pieces,
        place: int,
        timeout: float,
        window: int,
    ) -> None:
        self.rank = rank
        self.connection = connection
        self._tensors = tensors
        self._pieces = pieces
        self._place = self._started = place
        self._there = 0
        self._timeout = timeout
        self._window = window
        self._running: deque[list[Operation]] = deque()
        self._slots: list[tuple[bool, Slot | None]] = []
        self._where = table
        self._reading: list[Operation] = []

    def hear(self, place: int) -> None:
        """So many pieces are there at the other end."""
        self._there = min(place, len(self._pieces))

    def advance(self) -> int:
        """Starts reads and looks for their ends, and returns how many pieces are here; does not wait."""
        if self._slots or self._has_table():
            while self._running and all([operation.done() for operation in self._running[0]]):
                for operation in self._running[0]:
                    operation.wait()
                self._running.popleft()
                self._place += 1
            while self._started < self._there and len(self._running) < self._window:
                self._running.append(start_reads(self.connection, self._ranges_of(self._pieces[self._started]), self._timeout))
                self._started += 1
        return self._place

    def abandon(self) -> None:
        """Returns when nothing writes to this rank's memory for it any more."""
        abandon([*self._reading, *(one for some in self._running for one in some)])

    def _has_table(self) -> bool:
        nbytes = self._where.nbytes
        if nbytes != _ROW_BYTES * len(self._tensors):
            raise Protocol(f"{Protocol.code}: rank {self.rank} has slots in {nbytes} bytes for {len(self._tensors)} tensors", "")
        if isinstance(self._where, Slot):
            if not self._reading:
                self._table = bytearray(nbytes)
                self._reading = [self.connection.read_async(self._table, self._where, timeout=self._timeout, stream=None)]
            if not self._reading[0].done():
                return False
            self._reading[0].wait()
            self._where = memoryview(self._table)
        self._slots = list(self._slots_in(self._where))
        return True

    def _slots_in(self, table: memoryview) -> Iterable[tuple[bool, Slot | None]]:
        for index, tensor in enumerate(self._tensors):
            row = table[index * _ROW_BYTES : (index + 1) * _ROW_BYTES]
            with reading(f"the slots of rank {self.rank}"):
                slot = Slot.from_bytes(row[1:]) if tensor.nbytes else None
            if slot is not None and slot.nbytes != tensor.nbytes:
                raise Protocol(f"{Protocol.code}: rank {self.rank} has a slot of {slot.nbytes} bytes for {tensor.name!r}", "")
            yield bool(row[0]), slot

    def _ranges_of(self, piece: Sequence[tuple[int, int, int]]) -> Iterable[tuple[Tensor, int, bool, Slot]]:
        for index, first, part in piece:
            gpu, slot = self._slots[index]
            assert slot is not None
            yield self._tensors[index], first, gpu, slot.bytes(first, first + part)
