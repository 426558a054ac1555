"""Connections: the calls that move memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from .buffers import Buffer
from .errors import Mismatch, Protocol, invalid
from .kv import KvPool, RemotePool, block_numbers
from .operation import Operation
from .slot import Slot
from .streams import CURRENT, Stream, handle_of

if TYPE_CHECKING:
    from .endpoint import Endpoint

__all__ = ["Connection"]

SEND, RECV, WRITE, READ = range(4)  # CoreEndpoint::Kind
_LONGEST_SLOT = 1024


class Connection:
    """A way to another endpoint. The n-th `send` of a connection meets the n-th `recv` of the other end; both name as many bytes.

    Every call has three manners: ``conn.write(x, slot)`` waits; ``conn.write_async(x, slot)`` returns an `Operation`, which may be
    awaited. Arguments of all of them:

    timeout: seconds, default the endpoint's. notify: up to 1 MiB, for the other end's `Endpoint.notifications`, with the bytes in
    place. stream: what GPU memory waits for, default its framework's current stream; None: for nothing. event: makes
    `Operation.wait_on` possible.

    Buffers: see `tcpx.buffers`; a list of them is moved as one.
    """

    def __init__(self, endpoint: Endpoint, conn: int, peer: str = "", remote_gpu: int = 0) -> None:
        self.endpoint = endpoint
        self.id = conn
        self.peer = peer
        self.remote_gpu = remote_gpu

    def send(
        self,
        buffer: Buffer,
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
    ) -> None:
        """Sends a buffer. Returns when it may be changed again; the other end may not have it yet."""
        _end(self.endpoint._start(SEND, self.id, buffer, None, timeout, stream, notify, False))

    def recv(self, buffer: Buffer, *, timeout: float | None = None, stream: Stream = CURRENT) -> None:
        """Receives into a buffer what the other end sends, which must be as many bytes (`tcpx.Mismatch`)."""
        _end(self.endpoint._start(RECV, self.id, buffer, None, timeout, stream, None, False))

    def write(
        self,
        buffer: Buffer,
        slot: Slot | Sequence[Slot],
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
    ) -> None:
        """Writes a buffer to the beginning of a slot of the other end. Returns when the bytes are in place there."""
        _end(self.endpoint._start(WRITE, self.id, buffer, slot, timeout, stream, notify, False))

    def read(
        self,
        buffer: Buffer,
        slot: Slot | Sequence[Slot],
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
    ) -> None:
        """Reads the beginning of a slot of the other end into a buffer. `notify` tells the other end that it was read."""
        _end(self.endpoint._start(READ, self.id, buffer, slot, timeout, stream, notify, False))

    def send_async(
        self,
        buffer: Buffer,
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`send` as an `Operation`."""
        started = self.endpoint._start(SEND, self.id, buffer, None, timeout, stream, notify, event)
        return self.endpoint._operation(started)

    def recv_async(
        self, buffer: Buffer, *, timeout: float | None = None, stream: Stream = CURRENT, event: bool = False
    ) -> Operation:
        """`recv` as an `Operation`."""
        started = self.endpoint._start(RECV, self.id, buffer, None, timeout, stream, None, event)
        return self.endpoint._operation(started)

    def write_async(
        self,
        buffer: Buffer,
        slot: Slot | Sequence[Slot],
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`write` as an `Operation`."""
        started = self.endpoint._start(WRITE, self.id, buffer, slot, timeout, stream, notify, event)
        return self.endpoint._operation(started)

    def read_async(
        self,
        buffer: Buffer,
        slot: Slot | Sequence[Slot],
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`read` as an `Operation`."""
        started = self.endpoint._start(READ, self.id, buffer, slot, timeout, stream, notify, event)
        return self.endpoint._operation(started)

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
        _end(self._start_blocks(WRITE, pool, local_ids, remote_ids, remote, timeout, stream, notify, False))

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
        _end(self._start_blocks(READ, pool, local_ids, remote_ids, remote, timeout, stream, notify, False))

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
        started = self._start_blocks(WRITE, pool, local_ids, remote_ids, remote, timeout, stream, notify, event)
        return self.endpoint._operation(started)

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
        started = self._start_blocks(READ, pool, local_ids, remote_ids, remote, timeout, stream, notify, event)
        return self.endpoint._operation(started)

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
    ) -> tuple[_core.Operation, Any]:
        there = remote or pool.remote_of(self)
        if there.block_bytes != pool.block_bytes:
            raise Mismatch(
                f"{Mismatch.code}: move blocks: of {pool.block_bytes} bytes here, of {there.block_bytes} there", "", "move blocks"
            )
        extent = pool.extent()
        if extent.readonly and kind == READ:
            raise invalid("read blocks", "the pool's buffer is read-only")
        keep = pool, self.endpoint._registered(extent)
        current = extent.stream if stream is CURRENT else handle_of(stream)
        started = self.endpoint._core.start_blocks(
            kind,
            self.id,
            extent.address,
            pool.block_bytes,
            pool.blocks,
            block_numbers(local_ids),
            there.slot._raw,
            there.slot.offset,
            there.blocks,
            block_numbers(remote_ids),
            timeout,
            current,
            notify,
            event,
        )
        return started, keep

    def advertise(self, buffer: Buffer, *, readonly: bool = False, stream: Stream = CURRENT) -> Slot:
        """As `Endpoint.advertise`, for the other end of this connection only, and at most until it ends."""
        return self.endpoint._advertise(self.id, buffer, readonly, stream)

    def notify(self, data: bytes, name: str = "") -> None:
        """Says something to the other end's application: up to 1 MiB of data, and 256 bytes of name."""
        self.endpoint._core.notify(self.id, name.encode(), bytes(memoryview(data)))

    def send_slot(self, slot: Slot, timeout: float | None = None) -> None:
        """Ships a slot over the connection, in order with its sends.

        What others do with GPU memory that was advertised here waits for what its framework's current stream holds now.
        """
        slot._advertise_again()
        data = bytes(slot)
        self.send(len(data).to_bytes(8, "little"), timeout=timeout)
        self.send(data, timeout=timeout)

    def recv_slot(self, timeout: float | None = None) -> Slot:
        """The slot that the other end ships with `send_slot`."""
        length = bytearray(8)
        self.recv(length, timeout=timeout)
        size = int.from_bytes(length, "little")
        if size > _LONGEST_SLOT:
            raise Protocol(f"{Protocol.code}: receive slot: it has {size} bytes", "", "receive slot")
        data = bytearray(size)
        self.recv(data, timeout=timeout)
        return Slot.from_bytes(data)

    def close(self) -> None:
        """Ends the use of the connection: pending operations fail with `tcpx.Cancelled`."""
        self.endpoint._core.remove(self.id)
        self.endpoint._loans.sweep()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tcpx.Connection {self.id}{' from ' + self.peer if self.peer else ''}>"


def _end(started: tuple[_core.Operation, Any]) -> None:
    """Waits for the end. The buffers live until then, because the caller's frame keeps them."""
    operation, _keep = started
    operation.wait(None)
    operation.check()
