"""A state dict's tensors as bytes in memory, and the manifest by which two processes compare theirs before a byte moves."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import streams
from ..buffers import Buffer, extent_of
from ..errors import Error, Mismatch, invalid
from .foreign import integer, items, json_of, reading, text

__all__ = ["Entry", "Manifest", "Tensor", "piece_of", "tensors_of"]

#: Bytes of the longest manifest, and of the longest table of a publication.
LONGEST_MANIFEST = 64 << 20
#: Bytes of the shortest piece: bounds how many there are.
SHORTEST_PIECE = 64 << 10
_LEAST_BY_DEFAULT, _MOST_BY_DEFAULT = 16 << 20, 64 << 20
_MOST_DIFFERENCES = 5
_CODES = {"?": "bool", "e": "float16", "f": "float32", "d": "float64", "c": "uint8"}


def piece_of(nbytes: int, receivers: int) -> int:
    """Bytes of a piece by default. A chain is full when each receiver has had one, so together they are a 64th of the whole, unless that
    makes a piece shorter than 16 MiB. Over NVLink a longer one costs less: to one receiver 272 GB/s in pieces of 16 MiB, 300 of 64
    (two H200s)."""
    return max(_LEAST_BY_DEFAULT, min(nbytes // (64 * max(receivers, 1)), _MOST_BY_DEFAULT))


class Tensor:
    """One tensor of a state dict, contiguous, of this process.

    dtype: as numpy and torch name it. gpu: its bytes are a GPU's.
    """

    __slots__ = ("name", "dtype", "shape", "itemsize", "nbytes", "gpu", "readonly", "_address", "_keep", "_stream")

    def __init__(self, name: str, buffer: Buffer) -> None:
        try:
            extent = extent_of(buffer)
        except (Error, TypeError) as error:
            raise type(error)(f"tensor {name!r}: {error}") from None
        self.name = name
        self.dtype = dtype_of(extent.keep)
        self.shape = extent.shape
        self.itemsize = extent.itemsize
        self.nbytes = extent.nbytes
        self.gpu = extent.stream is not None or hasattr(extent.keep, "__cuda_array_interface__")
        self.readonly = extent.readonly
        self._address = extent.address
        self._keep = extent.keep
        self._stream = extent.stream

    def bytes(self, first: int = 0, nbytes: int | None = None) -> Buffer:
        """A buffer of some of its bytes, which are not copied."""
        nbytes = self.nbytes - first if nbytes is None else nbytes
        if self.gpu:
            return _GpuBytes(self._address + first, nbytes, self._keep)
        part = (ctypes.c_ubyte * nbytes).from_address(self._address + first)
        part.keep = self._keep  # type: ignore[attr-defined]
        return part

    def finish_work(self) -> None:
        """Waits until the GPU has done what its framework's current stream was given: nobody uses the tensor any more."""
        if self._stream is not None:
            streams.finish(self._stream)


class _GpuBytes:
    def __init__(self, address: int, nbytes: int, keep: Any) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "strides": None,
        }
        self._keep = keep


def tensors_of(state_dict: Mapping[str, Buffer]) -> dict[str, Tensor]:
    """The tensors of a state dict by name. Raises what `tcpx.buffers.extent_of` does, with the name."""
    for name in state_dict:
        if not isinstance(name, str):
            raise TypeError(f"a state dict's names are text, not {type(name).__name__}: {name!r}")
    return {name: Tensor(name, buffer) for name, buffer in state_dict.items()}


def dtype_of(buffer: Buffer) -> str:
    """The name of a buffer's element type: "float32", "bfloat16", "uint8"."""
    dtype = getattr(buffer, "dtype", None)
    if dtype is not None:
        return str(dtype).removeprefix("torch.")
    try:
        view = memoryview(buffer)
    except TypeError:
        return str(buffer.__cuda_array_interface__["typestr"])
    code = view.format[-1]
    if code in _CODES:
        return _CODES[code]
    return f"{'int' if code.islower() else 'uint'}{8 * view.itemsize}"


class Entry(NamedTuple):
    """What a manifest says of a tensor; shape and dtype as `Tensor`, nbytes in all."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    def __str__(self) -> str:
        return f"{self.dtype} of shape {list(self.shape)}"


class Manifest(NamedTuple):
    """Names, types, shapes of a state dict, in the order in which its bytes travel, and how many bytes make a piece."""

    entries: tuple[Entry, ...]
    piece_bytes: int

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], piece_bytes: int) -> Manifest:
        """The manifest of tensors of this process."""
        return cls(tuple(Entry(one.name, one.dtype, one.shape, one.nbytes) for one in tensors.values()), piece_bytes)

    def most_bytes(self) -> int:
        """Bytes that a manifest may have which another process says is the same: those of this one's names, types and shapes
        twice, and 64 KiB, in which one that differs a little finds room to be compared. Nobody makes this process read more."""
        return min(LONGEST_MANIFEST, 2 * len(self.to_bytes()) + (64 << 10))

    def to_bytes(self) -> bytes:
        """JSON; at most `LONGEST_MANIFEST` bytes."""
        data = json.dumps([self.piece_bytes, self.entries]).encode()
        if len(data) > LONGEST_MANIFEST:
            raise invalid("describe a state dict", f"its names and shapes take {len(data)} bytes")
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Reads what another process wrote. Raises `tcpx.Protocol` for anything else."""
        with reading("a manifest"):
            piece_bytes, rows = items(json_of(data), 2)
            entries = tuple(_entry_of(*items(row, 4)) for row in items(rows))
            return cls(entries, integer(piece_bytes, SHORTEST_PIECE, 1 << 40))

    def compare(self, tensors: Mapping[str, Tensor], there: str, here: str) -> None:
        """Raises `tcpx.Mismatch`, which names what differs, when tensors of this process are not those of the manifest."""
        said: list[str] = []
        for entry in self.entries:
            own = tensors.get(entry.name)
            if own is None:
                said.append(f"tensor {entry.name!r} is missing at {here}")
            elif (own.dtype, own.shape, own.nbytes) != entry[1:]:
                mine = Entry(entry.name, own.dtype, own.shape, own.nbytes)
                said.append(f"tensor {entry.name!r} is {entry} at {there} and {mine} at {here}")
        names = {entry.name for entry in self.entries}
        said += [f"tensor {name!r} is missing at {there}" for name in tensors if name not in names]
        if said:
            more = f"; and {len(said) - _MOST_DIFFERENCES} more" if len(said) > _MOST_DIFFERENCES else ""
            raise mismatch("; ".join(said[:_MOST_DIFFERENCES]) + more)

    def pieces(self) -> list[list[tuple[int, int, int]]]:
        """The pieces that travel as one: lists of (index of the entry, its first byte, bytes); tensors are cut and packed."""
        pieces: list[list[tuple[int, int, int]]] = []
        room = 0
        for index, entry in enumerate(self.entries):
            first = 0
            while first < entry.nbytes:
                if room == 0:
                    pieces.append([])
                    room = self.piece_bytes
                part = min(room, entry.nbytes - first)
                pieces[-1].append((index, first, part))
                first += part
                room -= part
        return pieces


def _entry_of(name: Any, dtype: Any, shape: Any, nbytes: Any) -> Entry:
    return Entry(text(name), text(dtype), tuple(map(integer, items(shape))), integer(nbytes))


def mismatch(detail: str) -> Mismatch:
    """`tcpx.Mismatch` with that detail."""
    return Mismatch(f"{Mismatch.code}: compare weights: {detail}", "", "compare weights", detail)
