"""Registrations by address, as `tcpx.uccl` numbers them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

from .. import _core
from ..buffers import extent_of
from ..errors import Error, NotFound, invalid
from ..slot import Terms
from .descs import XferDesc, keys_of
from .report import Refused

__all__ = ["Memories"]

_END = 2**64  # of addresses


class _Region:
    """What the endpoint knows as one. Descriptors of parts of it share it and its slot."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.users = 0
        self.keys: list[int] = []  # of descriptors

    @property
    def range(self) -> tuple[int, int]:
        return self.address, self.nbytes

    def has(self, address: int, nbytes: int) -> bool:
        return self.address <= address and address + nbytes <= self.address + self.nbytes


class _Memory(NamedTuple):
    address: int
    nbytes: int
    region: _Region
    keep: Any


class Memories:
    """Each registration has a number of its own, also one of the same range. Any thread."""

    def __init__(self, core: _core.Endpoint) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._of: dict[int, _Memory] = {}
        self._described: list[_Region] = []  # those with keys

    def add(self, address: int, nbytes: int) -> int:
        """Registers a range."""
        if min(address, nbytes) < 0 or address + nbytes > _END:
            raise invalid("register memory", f"{nbytes} bytes at address {address} are no memory")
        region = _Region(address, nbytes)
        self._core.add_region(address, nbytes)
        with self._lock:
            return self._number(_Memory(address, nbytes, region, None))

    def add_all(self, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """Registers all of them or, when one fails, none."""
        ids: list[int] = []
        try:
            for address, nbytes in ranges:
                ids.append(self.add(address, nbytes))
        except BaseException:
            for mr_id in ids:
                self.remove(mr_id)
            raise
        return ids

    def add_buffers(self, buffers: Sequence[Any]) -> list[XferDesc]:
        """Registers buffers, and lets other processes write to them and read from them. Raises `Refused` for what is none."""
        descs: list[XferDesc] = []
        try:
            for number, buffer in enumerate(buffers):
                descs.append(self._describe(number, buffer))
        except BaseException:
            for desc in descs:
                self.remove(desc.mr_id)
            raise
        return descs

    def _describe(self, number: int, buffer: Any) -> XferDesc:
        try:
            extent = extent_of(buffer)
        except (TypeError, Error) as error:
            raise Refused("register memory", f"object {number} is no tensor that can be used: {error}") from error
        if extent.readonly:
            raise Refused("register memory", f"object {number} is read-only")
        address, nbytes = extent.address, extent.nbytes
        with self._lock:
            region = next((one for one in self._described if one.has(address, nbytes)), None)
            if region is None:
                region = self._advertised(address, nbytes, extent.stream)
            elif extent.stream is not None and region.nbytes != 0:
                first, size = region.range
                self._core.advertise(None, region.range, first, size, extent.stream, *Terms())
            mr_id = self._number(_Memory(address, nbytes, region, extent.keep))
        return XferDesc(address, nbytes, mr_id, list(region.keys), list(region.keys))

    def _advertised(self, address: int, nbytes: int, stream: int | None) -> _Region:
        region = _Region(address, nbytes)
        if nbytes == 0:
            region.keys = keys_of(bytes(64), address)
            return region
        self._core.add_region(address, nbytes)
        try:
            region.keys = keys_of(self._core.advertise(None, region.range, address, nbytes, stream, *Terms()), address)
        except BaseException:
            self._core.drop_region(address, nbytes, True, None)
            raise
        self._described.append(region)
        return region

    def _number(self, memory: _Memory) -> int:
        memory.region.users += 1
        mr_id = next(self._ids)
        self._of[mr_id] = memory
        return mr_id

    def remove(self, mr_id: int) -> None:
        """Ends a registration. Raises `tcpx.NotFound`, and `tcpx.Timeout` when its memory is in use for too long."""
        with self._lock:
            memory = self._of.pop(mr_id, None)
            if memory is None:
                raise _unknown(mr_id)
            region = memory.region
            region.users -= 1
            if region.users != 0 or region.nbytes == 0:
                return
            if region in self._described:
                self._described.remove(region)
        self._core.drop_region(region.address, region.nbytes, True, None)

    def _memory(self, mr_id: int) -> _Memory:
        memory = self._of.get(mr_id)
        if memory is None:
            raise _unknown(mr_id)
        return memory

    def region_of(self, mr_id: int) -> tuple[int, int]:
        """Address and length of what the endpoint knows as one. Raises `tcpx.NotFound`."""
        return self._memory(mr_id).region.range

    def stream_of(self, mr_id: int) -> int | None:
        """The current stream of the framework whose buffer was registered; None: host memory, or a bare address."""
        memory = self._of.get(mr_id)
        return None if memory is None or memory.keep is None else extent_of(memory.keep).stream

    def range(self, mr_id: int, ptr: int, size: int) -> tuple[int, int]:
        """Address and length, checked against the registration. Raises `tcpx.NotFound` and `tcpx.InvalidArgument`."""
        memory = self._memory(mr_id)
        address, nbytes = index(ptr), index(size)
        if nbytes < 0 or address < memory.address or address + nbytes > memory.address + memory.nbytes:
            detail = f"{nbytes} bytes at address {address}, of a registration of {memory.nbytes} bytes at {memory.address}"
            raise invalid("find memory", detail)
        return address, nbytes


def _unknown(mr_id: object) -> NotFound:
    return NotFound(f"{NotFound.code}: find memory: no registration {mr_id}", "", "find memory", f"no registration {mr_id}")
