"""Endpoints and their connections."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, NamedTuple

from . import _core, _log
from ._session import Registration, Session
from .buffers import Buffer, extent_of
from .errors import Cancelled, Timeout
from .kv import BlockCalls
from .slot import Access, Slot, Terms
from .streams import CURRENT, Stream

__all__ = ["Connection", "Endpoint", "Notification", "PeerInfo", "Registration"]

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


class PeerInfo(NamedTuple):
    """The client that asks for a connection.

    ip: its address; remote_gpu: its GPU; name: what it has proved to be, of its certificate or secret; empty: it has proved nothing.
    """

    ip: str
    remote_gpu: int
    name: str


class Connection(BlockCalls):
    """A way to another endpoint. The n-th `send` of a connection meets the n-th `recv` of the other end; both name as many bytes.

    Every call has three manners: ``conn.write(x, slot)`` waits; ``conn.write_async(x, slot)`` returns an `Operation`, which may be
    awaited. Arguments of all of them:

    timeout: seconds, default the endpoint's. notify: up to 1 MiB, for the other end's `Endpoint.notifications`, with the bytes in
    place. stream: what GPU memory waits for, default its framework's current stream; None: for nothing. event: makes
    `Operation.wait_on` possible.

    Buffers: see `tcpx.buffers`; a list of them is moved as one.
    """

    def __init__(self, endpoint: Endpoint, conn: int, peer: str = "", remote_gpu: int = 0, name: str = "") -> None:
        super().__init__(endpoint.session, conn)
        self.endpoint = endpoint
        self.peer = peer
        self.remote_gpu = remote_gpu
        self.name = name

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tcpx.Connection {self.id}{' from ' + self.peer if self.peer else ''}>"


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
    accepts: called with the `PeerInfo` of each client that has proved what it must; a false answer refuses the client, and an
        exception, which `sys.unraisablehook` is told, does, too. Called on threads of the library, on several at once; a client
        waits for an answer for 10 s, and while 64 are awaited others are refused. `close` waits for none. It goes with the
        `Endpoint`, so it may refer to it.

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
        accepts: Callable[[PeerInfo], object] | None = None,
    ) -> None:
        _log.start()
        self.accepts = accepts
        # Weak: until the endpoint of the extension module has closed, it is kept, and what it refers to.
        question = None if accepts is None else functools.partial(_question, weakref.ref(self))
        core = _core.Endpoint(
            gpu,
            num_cpus,
            listen,
            port,
            public_address,
            plugin,
            timeout,
            inline_bytes,
            max_operations,
            max_peer_bytes,
            question,
        )
        self.session = Session(core)
        self._accepted: deque[Connection] = deque()

    # ---- connections

    @property
    def metadata(self) -> bytes:
        """What another process needs to `connect` to this endpoint: address, port and GPU. Ship it by any means."""
        return self.session.core.metadata()

    def connect(self, metadata: bytes, timeout: float = _CONNECT_TIMEOUT) -> Connection:
        """The connection to the endpoint with that `metadata`: an existing one, else a new one, which it has to `accept`."""
        return Connection(self, self.session.core.connect_metadata(bytes(memoryview(metadata)), timeout))

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
        self.session.core.start_accepting()

    def _accept_for(self, timeout: float) -> bool:
        accepted = self.session.core.accept(timeout)
        if accepted is None:
            return False
        conn, peer, gpu, name = accepted
        self._accepted.append(Connection(self, conn, peer, gpu, name))
        return True

    # ---- memory

    def register(self, buffer: Buffer) -> Registration:
        """Registers a buffer and keeps it alive until the registration ends. Buffers in use are registered without it, too."""
        return Registration(self.session, extent_of(buffer), asked_for=True)

    def advertise(
        self,
        buffer: Buffer,
        *,
        access: Access = "read-write",
        ends_after: float | None = None,
        uses: int | None = None,
        stream: Stream = CURRENT,
    ) -> Slot:
        """The right to write to the buffer and read from it, for whoever gets the slot.

        It holds until the buffer dies: the array or tensor that has the memory, of which the buffer may be a view, or the object
        of ctypes. The end of a bytearray, an `array.array`, an `mmap`, a memoryview of these and what only has DLPack cannot be
        seen: the endpoint keeps their memory. `Slot.withdraw` ends it earlier, and so do `Registration.release` of the buffer and
        the end of the endpoint; the end of another view does not. This slot, not its copies, keeps the buffer alive.

        access: what others may do with it. ends_after: seconds after which the slot ends by itself; operations that have begun go
        on. uses: writes and reads after which it does, well or badly ended; default: any number. stream: what others do with GPU memory waits for what this stream holds now, default its framework's current stream;
        None: for nothing. The call does not wait. Advertising a buffer again gives the same slot, unless it ends by itself, and
        orders what comes from then on after what the stream holds by then.
        """
        return self.session.advertise(None, Terms.of(access, ends_after, uses), buffer, stream)

    # ---- the rest

    def notifications(self, timeout: float = 0.0) -> list[Notification]:
        """What other endpoints' applications have said since the last call; waits up to `timeout` seconds for the first."""
        return [
            Notification(conn, name.decode(errors="replace"), data)
            for conn, name, data in self.session.core.notifications(timeout)
        ]

    async def notifications_async(self) -> list[Notification]:
        """Waits for notifications, at least one, while the event loop goes on."""
        while not (found := self.notifications()):
            await self.session.watchers.of_this_loop().next_event()
        return found

    def stats(self) -> dict[str, Any]:
        """Counters of the endpoint and of each of its connections; bytes, messages, microseconds."""
        return self.session.core.stats()

    def flight_record(self) -> str:
        """Text that shows the state of every connection, for people."""
        return self.session.core.flight_record()

    def metrics(self) -> str:
        """The same counters, and more, as text for a Prometheus server (docs/metrics.md). See `tcpx.prometheus`, too."""
        return self.session.core.metrics()

    def close(self) -> None:
        """Fails pending operations with `tcpx.Cancelled`, and returns when nothing touches the application's memory any more."""
        self.session.close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _question(
    endpoint: weakref.ref[Endpoint], ip: str, remote_gpu: int, name: str
) -> tuple[Callable[[PeerInfo], object], PeerInfo] | None:
    living = endpoint()
    if living is None or living.accepts is None:
        return None
    return living.accepts, PeerInfo(ip, remote_gpu, name)
