"""Block tables: scattered blocks of a KV cache move by their numbers, with one call and no Python for each block."""

from __future__ import annotations

import struct
import weakref
from typing import Any

from ._calls import Calls
from ._numbers import numbers_of
from ._session import READ, WRITE, Holder, Session, Started, finish
from .buffers import Buffer, Extent, extent_of
from .errors import Mismatch, invalid
from .operation import Operation
from .slot import Slot, Terms
from .streams import CURRENT, Stream, handle_of

__all__ = ["KvPool", "RemotePool"]

_BLOCK_BYTES = struct.Struct("<Q")


class RemotePool:
    """The pool of another process, as a value that travels: ``bytes(remote)`` and `from_bytes`, or pickle.

    Whoever knows it may write to and read from the pool's blocks, for as long as `Endpoint.advertise` says of the pool's tensor;
    where the pool is, ``remote.slot.withdraw()`` ends it.
    """

    __slots__ = ("slot", "block_bytes", "blocks")

    def __init__(self, slot: Slot, block_bytes: int) -> None:
        self.slot = slot
        self.block_bytes = block_bytes
        self.blocks = slot.nbytes // block_bytes

    def __bytes__(self) -> bytes:
        return _BLOCK_BYTES.pack(self.block_bytes) + bytes(self.slot)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> RemotePool:
        """The pool of `bytes(remote)`. Raises `tcpx.InvalidArgument` for anything else."""
        data = bytes(data)
        if len(data) < _BLOCK_BYTES.size:
            raise invalid("read a pool", f"{len(data)} bytes that are none")
        (block_bytes,) = _BLOCK_BYTES.unpack_from(data)
        slot = Slot.from_bytes(data[_BLOCK_BYTES.size :])
        _check_blocks("read a pool", slot.nbytes, block_bytes)
        return cls(slot, block_bytes)

    def __reduce__(self) -> tuple[object, ...]:
        return RemotePool.from_bytes, (bytes(self),)

    def __repr__(self) -> str:
        return f"<tcpx.kv.RemotePool of {self.blocks} blocks of {self.block_bytes} bytes>"


class KvPool:
    """Memory, divided into blocks of `block_bytes` bytes, which are numbered from 0: for `Connection.write_blocks` and `read_blocks`.

    tensor: any buffer, a multiple of `block_bytes` long; kept while the pool lives. Any number of endpoints may use it.
    """

    def __init__(self, tensor: Buffer, block_bytes: int) -> None:
        extent = extent_of(tensor)
        _check_blocks("make a pool", extent.nbytes, block_bytes)
        self.tensor = tensor
        self.block_bytes = block_bytes
        self.blocks = extent.nbytes // block_bytes
        self._advertised: weakref.WeakKeyDictionary[Session, RemotePool] = weakref.WeakKeyDictionary()
        self._exchanged: weakref.WeakKeyDictionary[Session, dict[int, RemotePool]] = weakref.WeakKeyDictionary()

    def advertise(self, endpoint: Holder) -> RemotePool:
        """What the process at the other end of a connection of `endpoint` needs to write to the blocks and to read them.

        As `Endpoint.advertise`: what others do with GPU memory waits for what its framework's current stream holds now.
        """
        self.extent()
        remote = RemotePool(endpoint.session.advertise(None, Terms(), self.tensor).bytes(), self.block_bytes)
        self._advertised[endpoint.session] = remote
        return remote

    def extent(self) -> Extent:
        """The memory, which must be where it was: a tensor that was resized since has lost its blocks."""
        extent = extent_of(self.tensor)
        if extent.nbytes != self.blocks * self.block_bytes:
            raise invalid("use a pool", f"{extent.nbytes} bytes now, {self.blocks * self.block_bytes} when it was made")
        return extent

    def remote_of(self, connection: Calls) -> RemotePool:
        """The pool that `exchange` got over a connection."""
        remote = self._exchanged.get(connection.session, {}).get(connection.id)
        if remote is None:
            raise invalid("move blocks", "no remote pool: pass remote=, or call pool.exchange(connection) at both ends")
        return remote

    def exchange(self, connection: Calls, timeout: float | None = None) -> RemotePool:
        """Swaps pools with the other end, which has to call this, too. Both name as many bytes a block."""
        mine = bytes(self.advertise(connection))
        theirs = bytearray(len(mine))
        receiving = connection.recv_async(theirs, timeout=timeout)
        connection.send(mine, timeout=timeout)
        receiving.wait()
        remote = RemotePool.from_bytes(theirs)
        if remote.block_bytes != self.block_bytes:
            raise invalid("exchange pools", f"blocks of {self.block_bytes} bytes here, of {remote.block_bytes} there")
        self._exchanged.setdefault(connection.session, {})[connection.id] = remote
        return remote

    def __repr__(self) -> str:
        return f"<tcpx.kv.KvPool of {self.blocks} blocks of {self.block_bytes} bytes>"


class BlockCalls(Calls):
    """The calls of `tcpx.Connection` that move blocks."""

    def write_blocks(
        self,
        pool: KvPool,
        local_ids: Any,
        remote_ids: Any,
        *,
        remote: RemotePool | None = None,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
    ) -> None:
        """Writes blocks of a pool, by number, to blocks of the other end's: ``local_ids[i]`` to ``remote_ids[i]``.

        local_ids, remote_ids: numpy arrays or lists of integers, as many. remote: the other end's pool; default: the one that
        `KvPool.exchange` got over this connection. `notify` comes when all blocks are in place.
        """
        finish(self._start_blocks(WRITE, pool, local_ids, remote_ids, remote, timeout, stream, notify, False))

    def read_blocks(
        self,
        pool: KvPool,
        local_ids: Any,
        remote_ids: Any,
        *,
        remote: RemotePool | None = None,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
    ) -> None:
        """Reads blocks of the other end's pool, by number: ``remote_ids[i]`` to ``local_ids[i]``. Else as `write_blocks`."""
        finish(self._start_blocks(READ, pool, local_ids, remote_ids, remote, timeout, stream, notify, False))

    def write_blocks_async(
        self,
        pool: KvPool,
        local_ids: Any,
        remote_ids: Any,
        *,
        remote: RemotePool | None = None,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`write_blocks` as an `Operation`. The numbers may be changed as soon as it returns."""
        return Operation(self.session, self._start_blocks(WRITE, pool, local_ids, remote_ids, remote, timeout, stream, notify, event))

    def read_blocks_async(
        self,
        pool: KvPool,
        local_ids: Any,
        remote_ids: Any,
        *,
        remote: RemotePool | None = None,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`read_blocks` as an `Operation`. The numbers may be changed as soon as it returns."""
        return Operation(self.session, self._start_blocks(READ, pool, local_ids, remote_ids, remote, timeout, stream, notify, event))

    def _start_blocks(
        self,
        kind: int,
        pool: KvPool,
        local_ids: Any,
        remote_ids: Any,
        remote: RemotePool | None,
        timeout: float | None,
        stream: Stream,
        notify: bytes | None,
        event: bool,
    ) -> Started:
        there = remote or pool.remote_of(self)
        if there.block_bytes != pool.block_bytes:
            raise Mismatch(
                f"{Mismatch.code}: move blocks: of {pool.block_bytes} bytes here, of {there.block_bytes} there", "", "move blocks"
            )
        extent = pool.extent()
        if extent.readonly and kind == READ:
            raise invalid("read blocks", "the pool's buffer is read-only")
        keep = pool, self.session.registered(extent)
        current = extent.stream if stream is CURRENT else handle_of(stream)
        mine = extent.address, pool.block_bytes, pool.blocks, numbers_of("block numbers", local_ids)
        theirs = there.slot.raw, there.slot.offset, there.blocks, numbers_of("block numbers", remote_ids)
        return self.session.core.start_blocks(kind, self.id, *mine, *theirs, timeout, current, notify, event), keep


def _check_blocks(operation: str, nbytes: int, block_bytes: int) -> None:
    if block_bytes < 1 or nbytes % block_bytes != 0:
        raise invalid(operation, f"{nbytes} bytes in blocks of {block_bytes}")
