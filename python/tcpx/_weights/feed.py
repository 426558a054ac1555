"""The hop of a chain: the pieces that a rank has, written to the rank behind it as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from ..buffers import extent_of
from ..endpoint import Connection, Endpoint, Registration
from ..errors import Error, Protocol
from ..operation import Operation
from ..slot import Slot
from .foreign import reading
from .manifest import Tensor
from .station import SHORT, Parcel, piece_note

__all__ = ["Feed", "Table"]

Pieces = Sequence[Sequence[tuple[int, int, int]]]

_SLOT_BYTES = 64
_ROW_BYTES = 1 + _SLOT_BYTES  # whether it is a GPU's memory, and its slot


class Table:
    """Where a rank wants the bytes of its tensors: their slots, for the rank before it. short: as of `Parcel`."""

    def __init__(self, connection: Connection, tensors: Sequence[Tensor], short: int = SHORT) -> None:
        self._slots = [connection.advertise(one.bytes()) if one.nbytes else None for one in tensors]
        rows = [
            bytes([one.gpu]) + (bytes(_SLOT_BYTES) if slot is None else bytes(slot)[:_SLOT_BYTES])
            for one, slot in zip(tensors, self._slots)
        ]
        self.parcel = Parcel(b"".join(rows), connection, short)

    def withdraw(self) -> None:
        """Nobody writes to the tensors through it any more when it returns."""
        for slot in (self.parcel.slot, *self._slots):
            if slot is not None:
                slot.withdraw()


class Feed:
    """Writes pieces to the rank behind this one, some at a time. `advance` raises `tcpx.Error`; it is `abandon`-ed then.

    number: of the round. rank: the one behind. has: pieces that it has, which are not written. window: pieces under way at once.
    """

    def __init__(
        self,
        number: int,
        rank: int,
        connection: Connection,
        table: memoryview | Slot,
        has: Iterable[int],
        tensors: Sequence[Tensor],
        pieces: Pieces,
        timeout: float,
        window: int,
    ) -> None:
        if table.nbytes != _ROW_BYTES * len(tensors):
            raise Protocol(f"{Protocol.code}: rank {rank} has slots in {table.nbytes} bytes for {len(tensors)} tensors", "")
        self.rank = rank
        self.connection = connection
        self._round = number
        self._tensors = tensors
        self._pieces = pieces
        self._timeout = timeout
        self._window = window
        self._seen = set(has)
        self._todo: deque[int] = deque()
        self._running: dict[int, list[Operation]] = {}
        self._slots: list[tuple[bool, Slot | None]] = []
        self._place = table
        self._table = bytearray(table.nbytes) if isinstance(table, Slot) else table
        self._reading: Operation | None = None

    @property
    def idle(self) -> bool:
        """Whether all that it was given has been written."""
        return not self._todo and not self._running

    def add(self, pieces: Iterable[int]) -> None:
        """Pieces that have arrived here."""
        for piece in pieces:
            if piece not in self._seen:
                self._seen.add(piece)
                self._todo.append(piece)

    def advance(self) -> None:
        """Starts writes and looks for their ends; does not wait."""
        if not self._slots:
            if isinstance(self._place, Slot):
                if self._reading is None:
                    self._reading = self.connection.read_async(self._table, self._place, timeout=self._timeout, stream=None)
                if not self._reading.done():
                    return
                self._reading.wait()
            self._slots = list(self._read_table())
        for piece, operations in list(self._running.items()):
            if all([operation.done() for operation in operations]):
                del self._running[piece]
                for operation in operations:
                    operation.wait()
        while self._todo and len(self._running) < self._window:
            self._write(self._todo.popleft())

    def abandon(self) -> None:
        """Returns when nothing reads this rank's memory for it any more."""
        operations = [one for some in self._running.values() for one in some]
        if self._reading is not None:
            operations.append(self._reading)
        for operation in operations:
            operation.cancel()
        for operation in operations:
            try:
                operation.wait()
            except Error:
                pass  # cancelled, or failed before
        self._running.clear()
        self._todo.clear()

    def _read_table(self) -> Iterable[tuple[bool, Slot | None]]:
        for index, tensor in enumerate(self._tensors):
            row = self._table[index * _ROW_BYTES : (index + 1) * _ROW_BYTES]
            with reading(f"the slots of rank {self.rank}"):
                slot = Slot.from_bytes(row[1:]) if tensor.nbytes else None
            if slot is not None and slot.nbytes != tensor.nbytes:
                raise Protocol(f"{Protocol.code}: rank {self.rank} has a slot of {slot.nbytes} bytes for {tensor.name!r}", "")
            yield bool(row[0]), slot

    def _write(self, piece: int) -> None:
        # An operation moves memory of the host or of GPUs, at each end.
        kinds: dict[tuple[bool, bool], tuple[list[Any], list[Slot]]] = {}
        for index, first, part in self._pieces[piece]:
            gpu, slot = self._slots[index]
            assert slot is not None
            buffers, slots = kinds.setdefault((self._tensors[index].gpu, gpu), ([], []))
            buffers.append(self._tensors[index].bytes(first, part))
            slots.append(slot.bytes(first, first + part))
        note = piece_note(self._round, piece, len(kinds))
        running = self._running[piece] = []
        for buffers, slots in kinds.values():
            running.append(self.connection.write_async(buffers, slots, timeout=self._timeout, notify=note, stream=None))


def register(endpoint: Endpoint, tensors: Iterable[Tensor]) -> list[Registration]:
    """Registers tensors until the registrations are released."""
    return [Registration(endpoint.session, extent_of(one.bytes())) for one in tensors if one.nbytes]
