"""Slots: the right to write to a buffer of another process, or to read from it, as a value that travels."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from . import _core
from .errors import invalid

__all__ = ["Access", "Slot"]

#: What others may do with memory that is advertised.
Access = Literal["read", "write", "read-write"]
_ACCESS = ("read", "read-write", "write")  # in the order of SlotAccess (include/tcpx/endpoint.h)

_RAW_BYTES = 64
_MAGIC = b"TXSL"
#: After the library's own 64 bytes: offset, itemsize, number of lengths, and the lengths. Little-endian.
_VIEW = struct.Struct("<QIB")
_MOST_DIMENSIONS = 32
_SIZE_IN_RAW = struct.Struct("<32xQ")  # RemoteSlot::bytes (include/tcpx/endpoint.h)


class Origin(NamedTuple):
    """What a slot has where it was advertised.

    keep: the buffer, until it is withdrawn. again: of GPU memory, advertises it after what the GPU has been given since.
    withdraw: ends the slot.
    """

    keep: list[Any]
    again: Callable[[Any], None] | None
    withdraw: Callable[[], None]


class Terms(NamedTuple):
    """How a slot may be used: an index into _ACCESS, for how many seconds from now on, and by how many operations; 0: any number."""

    access: int = _ACCESS.index("read-write")
    ends_after: float | None = None
    uses: int = 0

    @classmethod
    def of(cls, access: Access, ends_after: float | None, uses: int | None) -> Terms:
        if access not in _ACCESS:
            raise invalid("advertise", f"access={access!r}: it is one of {', '.join(_ACCESS)}")
        if uses is not None and not 0 < uses < 2**32:
            raise invalid("advertise", f"uses={uses}: at least one, or None for any number")
        return cls(_ACCESS.index(access), ends_after, uses or 0)

    @property
    def writes(self) -> bool:
        return _ACCESS[self.access] != "read"

    @property
    def passes(self) -> bool:
        """Whether the slot may end before its memory. No other call of `advertise` gives such a one."""
        return self.ends_after is not None or self.uses != 0


class Slot(_core.SlotParts):
    """A range that another endpoint advertised. Made by `Endpoint.advertise`, used with `Connection.write` and `.read`.

    A slot is a value: ``bytes(slot)`` and ``Slot.from_bytes`` carry it to another process, and so does pickle. Whoever knows it may
    use it for as long as `Endpoint.advertise` says.

    It is indexed like the contiguous tensor that it names: ``slot[3]`` is that row, ``slot[2:5]`` those rows; `slot.bytes` cuts by
    bytes, `slot.view` gives it another shape.

    shape, itemsize: of that tensor; nbytes: its length. raw: the 64 bytes of the whole advertisement, as C++ ships them.
    """

    __slots__ = ()

    def __init__(
        self,
        raw: bytes,
        offset: int,
        shape: tuple[int, ...],
        itemsize: int,
        origin: Origin | None = None,
    ) -> None:
        self.raw = raw
        self.offset = offset
        self.shape = shape
        self.itemsize = itemsize
        self.nbytes = math.prod(shape) * itemsize
        self._origin = origin  # of its parts, too; None where it has come to

    def withdraw(self) -> None:
        """Ends the slot, for everybody who has it or a part of it: to use it raises `tcpx.NotFound` from now on.

        Where it was advertised; a second call, and one after the endpoint was closed, do nothing. When nothing else of the buffer's
        memory is in use, waits for operations of others that are. `advertise` gives another slot then.
        """
        if self._origin is None:
            raise invalid("withdraw a slot", "it was advertised elsewhere, and is withdrawn there")
        self._origin.withdraw()
        self._origin.keep.clear()

    def advertise_again(self) -> None:
        """Of GPU memory, where it was advertised: what comes from now on waits for what the GPU has been given since."""
        if self._origin is not None and self._origin.again is not None:
            for buffer in list(self._origin.keep):
                self._origin.again(buffer)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a slot of one element has no length")
        return self.shape[0]

    def bytes(self, first: int = 0, last: int | None = None) -> Slot:
        """The bytes from `first` up to `last` (default: all that follow) of it."""
        last = self.nbytes if last is None else last
        if not 0 <= first <= last <= self.nbytes:
            raise invalid("cut a slot", f"bytes {first} to {last} of {self.nbytes}")
        return Slot(self.raw, self.offset + first, (last - first,), 1, self._origin)

    def view(self, shape: tuple[int, ...], itemsize: int = 1) -> Slot:
        """The same bytes under another shape, of elements of `itemsize` bytes."""
        if itemsize < 1 or min(shape, default=0) < 0 or math.prod(shape) * itemsize != self.nbytes:
            raise invalid("view a slot", f"shape {shape} of {itemsize}-byte elements, for {self.nbytes} bytes")
        return Slot(self.raw, self.offset, tuple(shape), itemsize, self._origin)

    def __bytes__(self) -> bytes_:
        lengths = struct.pack(f"<{len(self.shape)}Q", *self.shape)
        return self.raw + _VIEW.pack(self.offset, self.itemsize, len(self.shape)) + lengths

    @classmethod
    def from_bytes(cls, data: bytes_ | bytearray | memoryview) -> Slot:
        """The slot of `bytes(slot)`, or of the 64 bytes that C++ ships. Raises `tcpx.InvalidArgument` for anything else."""
        data = bytes_(data)
        if len(data) < _RAW_BYTES or data[:4] != _MAGIC:
            raise invalid("read a slot", f"{len(data)} bytes that are none")
        raw = data[:_RAW_BYTES]
        (whole,) = _SIZE_IN_RAW.unpack_from(raw)
        if len(data) == _RAW_BYTES:
            return cls(raw, 0, (whole,), 1)
        try:
            offset, itemsize, dimensions = _VIEW.unpack_from(data, _RAW_BYTES)
            if dimensions > _MOST_DIMENSIONS:
                raise invalid("read a slot", f"{dimensions} dimensions")
            if len(data) != _RAW_BYTES + _VIEW.size + 8 * dimensions:
                raise invalid("read a slot", f"{len(data)} bytes for {dimensions} dimensions")
            shape = struct.unpack_from(f"<{dimensions}Q", data, _RAW_BYTES + _VIEW.size)
        except struct.error as error:
            raise invalid("read a slot", f"{len(data)} bytes: {error}") from None
        slot = cls(raw, offset, shape, itemsize)
        if itemsize < 1 or offset > whole or slot.nbytes > whole - offset:
            raise invalid("read a slot", f"{slot.nbytes} bytes at {offset} of an advertisement of {whole}")
        return slot

    def __reduce__(self) -> tuple[object, ...]:
        return Slot.from_bytes, (bytes_(self),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slot) and bytes_(self) == bytes_(other)

    def __hash__(self) -> int:
        return hash((self.raw, self.offset, self.shape, self.itemsize))

    def __repr__(self) -> str:
        # Not the id: knowing it is the right to use the slot, and what is printed ends up in logs.
        return f"<tcpx.Slot of {self.nbytes} bytes, shape {self.shape}, itemsize {self.itemsize}>"


bytes_ = bytes  # `Slot.bytes` hides it inside the class
