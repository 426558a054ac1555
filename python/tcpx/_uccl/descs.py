"""Descriptors of registered memory, as `tcpx.uccl` ships them between processes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..errors import invalid
from .report import Refused

__all__ = ["NO_ID", "XferDesc", "keys_of", "pack", "unpack"]

#: Stands for no registration and for no connection.
NO_ID = 2**64 - 1

_SLOT_BYTES = 64
_KEYS = struct.Struct("<64sQ")  # slot of a registered range, and where it begins
_WORDS = struct.Struct(f"<{_KEYS.size // 4}I")
_HEAD = struct.Struct("<4sI")  # magic, number of descriptors
_MAGIC = b"TXUD"
_ENTRY = struct.Struct(f"<QQ{_KEYS.size}s")  # address, length, keys


@dataclass
class XferDesc:
    """A range of memory that another process may write to and read from, and that this one may do so from.

    addr, size: the range, in bytes. Both may be changed to name a part of the memory that was registered.
    mr_id: its registration in the process that made it; `NO_ID` elsewhere.
    lkeys, rkeys: the right to use it. Both are the same 18 words, which nobody can guess: whoever knows them may use the memory.
    """

    addr: int = 0
    size: int = 0
    mr_id: int = NO_ID
    lkeys: list[int] = field(default_factory=list, repr=False)
    rkeys: list[int] = field(default_factory=list, repr=False)

    def place(self) -> tuple[bytes, int]:
        """Slot of the registered range, and where in it this one begins. Raises `tcpx.InvalidArgument`."""
        try:
            slot, base = _KEYS.unpack(_WORDS.pack(*self.rkeys))
        except (TypeError, struct.error):
            raise Refused("transfer", "a descriptor has keys that were not made by register_memory") from None
        if self.addr < base:
            raise invalid("transfer", f"a descriptor begins {base - self.addr} bytes before the memory that was registered")
        return slot, self.addr - base


def keys_of(slot: bytes, address: int) -> list[int]:
    """Keys for a slot of 64 bytes, whose range begins at `address`."""
    return list(_WORDS.unpack(_KEYS.pack(slot, address)))


def pack(descs: Iterable[XferDesc]) -> bytes:
    """Descriptors as bytes. Raises `Refused` for anything else."""
    parts = []
    for number, desc in enumerate(descs):
        try:
            parts.append(_ENTRY.pack(desc.addr, desc.size, _WORDS.pack(*desc.rkeys)))
        except (AttributeError, TypeError, struct.error) as error:
            raise Refused("serialize descriptors", f"number {number} is none that was registered: {error}") from None
    return _HEAD.pack(_MAGIC, len(parts)) + b"".join(parts)


def unpack(data: bytes) -> list[XferDesc]:
    """Descriptors of `pack`; none of no bytes. Raises `Refused` for anything else."""
    try:
        data = bytes(memoryview(data))
    except (TypeError, BufferError) as error:
        raise Refused("deserialize descriptors", str(error)) from None
    if not data:
        return []
    magic, count = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (b"", 0)
    if magic != _MAGIC or len(data) != _HEAD.size + count * _ENTRY.size:
        raise Refused("deserialize descriptors", f"{len(data)} bytes that are none, or not all")
    descs = []
    for address, nbytes, keys in _ENTRY.iter_unpack(data[_HEAD.size :]):
        words = list(_WORDS.unpack(keys))
        descs.append(XferDesc(address, nbytes, NO_ID, words, list(words)))
    return descs
