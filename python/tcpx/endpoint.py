"""Endpoints: memory, connections, and the start and end of operations."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from . import _core, _log
from ._loans import Loans
from ._watcher import Watchers
from .buffers import Buffer, Extent, extent_of, owner_of
from .connection import READ, RECV, Connection
from .errors import Cancelled, Mismatch, Timeout, invalid
from .operation import Operation
from .slot import Origin, Slot
from .streams import CURRENT, Stream, handle_of

__all__ = ["Endpoint", "Notification", "Registration"]

#: Operations that nobody has asked about before the ended ones among them are looked for.
_FIRST_SWEEP = 64
#: Seconds for which a connection is waited for.
_CONNECT_TIMEOUT = 30.0
_ACCEPT_SLICE = 0.2
_FOREVER = 1e9


class Notification(NamedTuple):
    """What another endpoint's application said.

    connection: over which it came; name: at most 256 bytes; data: at most 1 MiB.
    """

    connection: int
    name: str
    data: bytes


class Registration:
    """Memory that an endpoint may move: made by `Endpoint.register`, ended by `release`, ``with``, or when nobody keeps it."""

    def __init__(self, endpoint: Endpoint, extent: Extent, *, asked_for: bool = False) -> None:
        core = endpoint._core
        core.add_region(extent.address, extent.nbytes)
        self._keep: Any = extent.keep
        self._endpoint = weakref.ref(endpoint)
        self._range = extent.address, extent.nbytes
        self._asked_for = asked_for  # by the application: its slots end with it
        if asked_for:
            endpoint._asked_for[self._range] += 1
        self._end = weakref.finalize(self, _drop_registration, self._endpoint, *self._range, asked_for)
        self._end.atexit = False

    def release(self) -> None:
        """Withdraws the slots of this memory, and waits for operations that use it. The buffer is free then.

        While it is registered a second time, the end of that does so.
        """
        endpoint = self._endpoint()
        if self._end.detach() is not None and endpoint is not None:
            if self._asked_for and _forget_registration(endpoint, self._range):
                endpoint._loans.withdraw_within(*self._range)
            endpoint._core.drop_region(*self._range, True)
        self._keep = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()


def _forget_registration(endpoint: Endpoint, range: tuple[int, int]) -> bool:
    """Whether it was the last that the application asked for of that range."""
    endpoint._asked_for[range] -= 1
    return endpoint._asked_for[range] <= 0 and endpoint._asked_for.pop(range, None) is not None


def _drop_registration(endpoint: weakref.ref[Endpoint], address: int, nbytes: int, asked_for: bool) -> None:
    living = endpoint()
    if living is not None:
        if asked_for:
            _forget_registration(living, (address, nbytes))
        _drop_region(endpoint, address, nbytes)


def _advertise_again(endpoint: weakref.ref[Endpoint], conn: int | None, readonly: bool, buffer: Buffer) -> None:
    living = endpoint()
    if living is not None:
        living._advertise(conn, buffer, readonly, CURRENT)


def _drop_region(endpoint: weakref.ref[Endpoint], address: int, nbytes: int) -> None:
    living = endpoint()
    if living is not None:
        cached = living._cached.get((address, nbytes))
        if cached is not None and not cached.alive:
            del living._cached[address, nbytes]
        living._core.drop_region(address, nbytes, False)


def _end(
    core: _core.Endpoint, cached: dict[tuple[int, int], weakref.finalize[Any, Any]], loans: Loans, watchers: Watchers
) -> None:
    for owner in cached.values():
        owner.detach()
    cached.clear()
    core.close()
    loans.close()
    watchers.close()


class Endpoint:
    """An application's side of the library: it registers memory, makes connections, and moves bytes. Any thread.

    gpu: the GPU that moves memory, and near which NICs are chosen; memory of the host and of other GPUs can be moved, too. 0 on a
        machine without one.
    listen, port: address (default: every one) and port (default: any free one) to listen on.
    public_address: what `metadata` tells others, several with commas; default: those of the NICs, else loopback.
    timeout: seconds after which an operation fails; default: UCCL_TCPX_OP_TIMEOUT_MS.
    num_cpus: cores it may use; 0: all.
    inline_bytes: longest message that travels with its announcement, 0 to 65536.
    max_operations: operations started and not yet ended and asked for.
    max_peer_bytes: what all peers together may make it hold, at least 32 MiB; default: UCCL_TCPX_MAX_PEER_BYTES.
    plugin: net plugin to load; default: the environment's, else an installed one, else the one inside.

    After ``fork`` the child may only drop it; use `spawn` or `forkserver`.
    """

    def __init__(
        self,
        gpu: int = 0,
        *,
        listen: str = "",
        port: int = 0,
        public_address: str = "",
        timeout: float | None = None,
        num_cpus: int = 0,
        inline_bytes: int | None = None,
        max_operations: int = 65536,
        max_peer_bytes: int | None = None,
        plugin: str = "",
    ) -> None:
        _log.start()
        self._core = _core.Endpoint(
            gpu, num_cpus, listen, port, public_address, plugin, timeout, inline_bytes, max_operations, max_peer_bytes
        )
        self._cached: dict[tuple[int, int], weakref.finalize[Any, Any]] = {}
        self._loans = Loans(self._core)
        self._asked_for: Counter[tuple[int, int]] = Counter()
        self._accepted: deque[Connection] = deque()
        self._pending: set[Operation] = set()
        self._next_sweep = _FIRST_SWEEP
        self._watchers = Watchers(self._core)
        # Also when the interpreter ends.
        self._closing = weakref.finalize(self, _end, self._core, self._cached, self._loans, self._watchers)

    # ---- connections

    @property
    def metadata(self) -> bytes:
        """What another process needs to `connect` to this endpoint: address, port and GPU. Ship it by any means."""
        return self._core.metadata()

    def connect(self, metadata: bytes, timeout: float = _CONNECT_TIMEOUT) -> Connection:
        """The connection to the endpoint with that `metadata`: an existing one, else a new one, which it has to `accept`."""
        return Connection(self, self._core.connect_metadata(bytes(memoryview(metadata)), timeout))

    async def connect_async(self, metadata: bytes, timeout: float = _CONNECT_TIMEOUT) -> Connection:
        """`connect`, while the event loop goes on."""
        return await asyncio.to_thread(self.connect, metadata, timeout)

    def accept(self, timeout: float | None = None) -> Connection:
        """The next connection that another endpoint makes to this one. Raises `tcpx.Timeout` after `timeout` seconds.

        One that has ended again before anybody accepted it, and has left nothing to receive, is not told of.
        """
        if not self._accepted and not self._accept_for(_FOREVER if timeout is None else timeout):
            raise Timeout(f"{Timeout.code}: accept: nobody connected in {timeout} s", "", "accept")
        return self._accepted.popleft()

    async def accept_async(self) -> Connection:
        """`accept`, while the event loop goes on."""
        while not self._accepted:
            # In slices: a task that is cancelled leaves no thread behind for long, and what that one accepts is kept.
            await asyncio.to_thread(self._accept_for, _ACCEPT_SLICE)
        return self._accepted.popleft()

    async def connections(self) -> AsyncIterator[Connection]:
        """Connections that other endpoints make to this one, as they come, until this endpoint is closed."""
        while True:
            try:
                connection = await self.accept_async()
            except Cancelled:
                return
            yield connection

    def accept_all(self) -> None:
        """Accepts connections from now on without `accept`, for an endpoint that only advertises memory."""
        self._core.start_accepting()

    def _accept_for(self, timeout: float) -> bool:
        accepted = self._core.accept(timeout)
        if accepted is None:
            return False
        conn, peer, gpu = accepted
        self._accepted.append(Connection(self, conn, peer, gpu))
        return True

    # ---- memory

    def register(self, buffer: Buffer) -> Registration:
        """Registers a buffer and keeps it alive until the registration ends. Buffers in use are registered without it, too."""
        return Registration(self, extent_of(buffer), asked_for=True)

    def advertise(self, buffer: Buffer, *, readonly: bool = False, stream: Stream = CURRENT) -> Slot:
        """The right to write to the buffer and read from it, for whoever gets the slot.

        It holds until the buffer dies: the array or tensor that has the memory, of which the buffer may be a view, or the object
        of ctypes. The end of a bytearray, an `array.array`, an `mmap`, a memoryview of these and what only has DLPack cannot be
        seen: the endpoint keeps their memory. `Slot.withdraw` ends it earlier, and so do `Registration.release` of the buffer and
        the end of the endpoint; the end of another view does not. This slot, not its copies, keeps the buffer alive.

        readonly: others may only read. stream: what others do with GPU memory waits for what this stream holds now, default its
        framework's current stream; None: for nothing. The call does not wait. Advertising a buffer again gives the same slot,
        and orders what comes from then on after what the stream holds by then.
        """
        return self._advertise(None, buffer, readonly, stream)

    def _advertise(self, conn: int | None, buffer: Buffer, readonly: bool, stream: Stream) -> Slot:
        extent = extent_of(buffer)
        if extent.readonly and not readonly:
            raise invalid("advertise", "the buffer is read-only; with readonly=True others may read it")
        current = extent.stream if stream is CURRENT else handle_of(stream)
        raw = self._loans.advertise(conn, extent, current, readonly)
        again = None
        if current is not None and stream is CURRENT:
            again = functools.partial(_advertise_again, weakref.ref(self), conn, readonly)
        origin = Origin([extent.keep], again, functools.partial(self._loans.withdraw, raw))
        return Slot(raw, 0, extent.shape, extent.itemsize, origin)

    def _registered(self, extent: Extent) -> Any:
        """Sees to it that the memory is registered. What is returned is kept for as long as that is needed, with the memory."""
        held = self._core.hold(extent.address, extent.nbytes)
        if held is not None:
            return held
        owner, address, nbytes, _ = owner_of(extent)
        if owner is None:
            return Registration(self, extent)
        if (address, nbytes) not in self._cached:
            self._core.add_region(address, nbytes)
            end = weakref.finalize(owner, _drop_region, weakref.ref(self), address, nbytes)
            end.atexit = False
            self._cached[address, nbytes] = end
        return None

    # ---- operations

    def _start(
        self,
        kind: int,
        conn: int,
        buffer: Buffer,
        slot: Slot | Sequence[Slot] | None,
        timeout: float | None,
        stream: Stream,
        notify: bytes | None,
        event: bool,
    ) -> tuple[_core.Operation, Any]:
        if isinstance(buffer, (list, tuple)):
            return self._start_many(kind, conn, buffer, slot, timeout, stream, notify, event)
        extent = extent_of(buffer)
        address, nbytes, keep, current, readonly = extent.address, extent.nbytes, extent.keep, extent.stream, extent.readonly
        if stream is not CURRENT:
            current = handle_of(stream)
        if slot is None:
            raw, offset = None, 0
        elif isinstance(slot, Slot):
            _check_fit(nbytes, slot)
            raw, offset = slot._raw, slot.offset
        else:
            raise TypeError(f"one buffer goes to one slot, not to {type(slot).__name__}")
        if readonly and kind in (RECV, READ):
            raise invalid("receive or read", "the buffer is read-only")
        if nbytes == 0:
            return self._core.start_many(kind, conn, [], [], timeout, current, notify, event), keep
        while True:
            started = self._core.start(kind, conn, address, nbytes, raw, offset, timeout, current, notify, event)
            if started is not None:
                return started, keep
            keep = extent.keep, self._registered(extent)

    def _start_many(
        self,
        kind: int,
        conn: int,
        buffers: Sequence[Buffer],
        slots: Slot | Sequence[Slot] | None,
        timeout: float | None,
        stream: Stream,
        notify: bytes | None,
        event: bool,
    ) -> tuple[_core.Operation, Any]:
        extents = [extent_of(buffer) for buffer in buffers]
        if kind in (RECV, READ) and any(extent.readonly for extent in extents):
            raise invalid("receive or read", "one of the buffers is read-only")
        remote: list[tuple[bytes, int]] = []
        if slots is not None:
            if isinstance(slots, Slot) or len(slots) != len(extents):
                raise invalid("write or read", f"{len(extents)} buffers need as many slots")
            for extent, slot in zip(extents, slots):
                _check_fit(extent.nbytes, slot)
                remote.append((slot._raw, slot.offset))
        if stream is CURRENT:
            currents = {extent.stream for extent in extents if extent.stream is not None}
            if len(currents) > 1:
                raise invalid("start", "the buffers belong to several streams; name the one to wait for: stream=...")
            current = currents.pop() if currents else None
        else:
            current = handle_of(stream)
        keep = [(extent.keep, self._registered(extent)) for extent in extents if extent.nbytes]
        if remote:
            remote = [place for place, extent in zip(remote, extents) if extent.nbytes]
        local = [(extent.address, extent.nbytes) for extent in extents if extent.nbytes]
        return self._core.start_many(kind, conn, local, remote, timeout, current, notify, event), keep

    def _operation(self, started: tuple[_core.Operation, Any]) -> Operation:
        """Keeps the operation, and with it its buffers, until its end was seen."""
        operation = Operation(self, *started)
        if len(self._pending) >= self._next_sweep:
            for one in list(self._pending):
                one.done()
            self._next_sweep = max(_FIRST_SWEEP, 2 * len(self._pending))
        self._pending.add(operation)
        return operation

    def _forget(self, operation: Operation) -> None:
        self._pending.discard(operation)

    def _watch(self, operation: Operation) -> asyncio.Future[None]:
        return self._watchers.of_this_loop().add(operation)

    # ---- the rest

    def notifications(self, timeout: float = 0.0) -> list[Notification]:
        """What other endpoints' applications have said since the last call; waits up to `timeout` seconds for the first."""
        return [
            Notification(conn, name.decode(errors="replace"), data)
            for conn, name, data in self._core.notifications(timeout)
        ]

    async def notifications_async(self) -> list[Notification]:
        """Waits for notifications, at least one, while the event loop goes on."""
        while not (found := self.notifications()):
            await self._watchers.of_this_loop().next_event()
        return found

    def stats(self) -> dict[str, Any]:
        """Counters of the endpoint and of each of its connections; bytes, messages, microseconds."""
        return self._core.stats()

    def flight_record(self) -> str:
        """Text that shows the state of every connection, for people."""
        return self._core.flight_record()

    def metrics(self) -> str:
        """The same counters, and more, as text for a Prometheus server (docs/metrics.md). See `tcpx.prometheus`, too."""
        return self._core.metrics()

    def close(self) -> None:
        """Fails pending operations with `tcpx.Cancelled`, and returns when nothing touches the application's memory any more."""
        for operation in list(self._pending):
            operation.done()  # what has ended well stays so
        self._closing()
        self._core.close()  # returns when it is closed, also by another thread
        for operation in list(self._pending):
            operation.done()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_fit(nbytes: int, slot: Slot) -> None:
    if nbytes > slot.nbytes:
        raise Mismatch(f"{Mismatch.code}: write or read: {nbytes} bytes for a slot of {slot.nbytes}", "", "write or read")
