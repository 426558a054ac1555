"""The state that an endpoint, its connections and their operations share: memory in use, and operations from their start to their end."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import _core
from ._loans import Loans
from ._watcher import Watchers
from .buffers import Buffer, Extent, extent_of, owner_of
from .errors import Mismatch, invalid
from .slot import Origin, Slot, Terms
from .streams import CURRENT, Stream, handle_of

__all__ = ["READ", "RECV", "SEND", "WRITE", "Holder", "Registration", "Session", "Started", "finish"]

SEND, RECV, WRITE, READ = range(4)  # CoreEndpoint::Kind

#: An operation, and what keeps its memory.
Started = tuple[_core.Operation, Any]
_Range = tuple[int, int]  # address and length
#: Operations that nobody has asked about before the ended ones among them are looked for.
_FIRST_SWEEP = 64


class Session:
    """One for each endpoint. Any thread.

    core: the endpoint of the extension module. pending: operations whose end was not seen yet, with what keeps their memory.
    """

    def __init__(self, core: _core.Endpoint) -> None:
        self.core = core
        self.loans = Loans(core)
        self.watchers = Watchers(core)
        self.pending: dict[_core.Operation, Any] = {}
        self._next_sweep = _FIRST_SWEEP
        self._asked_for: Counter[_Range] = Counter()
        self._cached: dict[_Range, weakref.finalize[Any, Any]] = {}
        # Also when the interpreter ends.
        self._closing = weakref.finalize(self, _close, core, self._cached, self.loans, self.watchers)

    def close(self) -> None:
        """See `Endpoint.close`."""
        self.sweep()  # what has ended well stays so
        self._closing()
        self.core.close()  # returns when it is closed, also by another thread
        self.sweep()

    # ---- memory

    def advertise(self, conn: int | None, terms: Terms, buffer: Buffer, stream: Stream = CURRENT) -> Slot:
        """See `Endpoint.advertise`. conn: for the other end of that connection only."""
        extent = extent_of(buffer)
        if extent.readonly and terms.writes:
            raise invalid("advertise", 'the buffer is read-only; with access="read" others may read it')
        current = extent.stream if stream is CURRENT else handle_of(stream)
        raw = self.loans.advertise(conn, extent, current, terms)
        again = None
        if current is not None and stream is CURRENT and not terms.passes:
            again = functools.partial(_while_it_lives, weakref.ref(self), Session.advertise, conn, terms)
        origin = Origin([extent.keep], again, functools.partial(self.loans.withdraw, raw))
        return Slot(raw, 0, extent.shape, extent.itemsize, origin)

    def add(self, range: _Range, asked_for: bool) -> None:
        """Registers memory. asked_for: by the application."""
        self.core.add_region(*range)
        if asked_for:
            self._asked_for[range] += 1

    def drop(self, range: _Range, asked_for: bool = False, wait: bool = False, timeout: float | None = None) -> None:
        """Ends a registration. wait: for operations that use the memory, whose slots end with the last that was asked for.
        timeout: as of `Registration.release`."""
        if asked_for:
            self._asked_for[range] -= 1
            if self._asked_for[range] <= 0 and self._asked_for.pop(range, None) is not None and wait:
                self.loans.withdraw_within(*range)
        cached = self._cached.get(range)
        if cached is not None and not cached.alive:
            del self._cached[range]
        self.core.drop_region(*range, wait, timeout)

    def registered(self, extent: Extent) -> Any:
        """Sees to it that the memory is registered. What is returned is kept for as long as that is needed, with the memory."""
        held = self.core.hold(extent.address, extent.nbytes)
        if held is not None:
            return held
        owner, address, nbytes, _ = owner_of(extent)
        if owner is None:
            return Registration(self, extent)
        if (address, nbytes) not in self._cached:
            self.core.add_region(address, nbytes)
            end = weakref.finalize(owner, _while_it_lives, weakref.ref(self), Session.drop, (address, nbytes))
            end.atexit = False
            self._cached[address, nbytes] = end
        return None

    # ---- operations

    def start(
        self,
        kind: int,
        conn: int,
        buffer: Buffer,
        slot: Slot | Sequence[Slot] | None,
        timeout: float | None,
        stream: Stream,
        notify: bytes | None,
        event: bool,
    ) -> Started:
        if isinstance(buffer, (list, tuple)):
            return self._start_many(kind, conn, buffer, slot, timeout, stream, notify, event)
        extent = extent_of(buffer)
        address, nbytes, keep, readonly = extent.address, extent.nbytes, extent.keep, extent.readonly
        current = extent.stream if stream is CURRENT else handle_of(stream)
        if slot is None:
            raw, offset = None, 0
        elif isinstance(slot, Slot):
            _check_fit(nbytes, slot)
            raw, offset = slot.raw, slot.offset
        else:
            raise TypeError(f"one buffer goes to one slot, not to {type(slot).__name__}")
        if readonly and kind in (RECV, READ):
            raise invalid("receive or read", "the buffer is read-only")
        if nbytes == 0:
            return self._start_many(kind, conn, [buffer], None if slot is None else [slot], timeout, stream, notify, event)
        while True:
            started = self.core.start(kind, conn, address, nbytes, raw, offset, timeout, current, notify, event)
            if started is not None:
                return started, keep
            keep = extent.keep, self.registered(extent)

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
    ) -> Started:
        ranges = _core.ranges_of(buffers, slots, extent_of)
        if ranges.readonly and kind in (RECV, READ):
            raise invalid("receive or read", "one of the buffers is read-only")
        if stream is CURRENT:
            if len(ranges.streams) > 1:
                raise invalid("start", "the buffers belong to several streams; name the one to wait for: stream=...")
            current = next(iter(ranges.streams), None)
        else:
            current = handle_of(stream)
        keep = [ranges.parts]
        while True:
            started = self.core.start_many(kind, conn, ranges, timeout, current, notify, event)
            if started is not None:
                return started, keep
            keep.append(self.registered_parts(ranges))

    def registered_parts(self, ranges: _core.Ranges) -> list[Any]:
        """`registered`, of all of them."""
        extents = [part if isinstance(part, Extent) else extent_of(part) for part in ranges.parts]
        return [self.registered(extent) for extent in extents if extent.nbytes]

    def keep(self, started: Started) -> _core.Operation:
        """Keeps an operation, and with it its buffers, until its end was seen."""
        if len(self.pending) >= self._next_sweep:
            self.sweep()
            self._next_sweep = max(_FIRST_SWEEP, 2 * len(self.pending))
        operation, buffers = started
        self.pending[operation] = buffers
        return operation

    def sweep(self) -> None:
        """Lets go of the operations that have ended."""
        for operation in list(self.pending):
            if operation.done():
                self.pending.pop(operation, None)


class Holder(Protocol):
    """The holder of a session: an endpoint, or one of its connections."""

    session: Session


class Registration:
    """Memory that an endpoint may move: made by `Endpoint.register`, ended by `release`, ``with``, or when nobody keeps it."""

    def __init__(self, session: Session, extent: Extent, *, asked_for: bool = False) -> None:
        self._range = extent.address, extent.nbytes
        session.add(self._range, asked_for)
        self._keep: Any = extent.keep
        self._session = weakref.ref(session)
        self._asked_for = asked_for  # by the application: its slots end with it
        self._end = weakref.finalize(self, _while_it_lives, self._session, Session.drop, self._range, asked_for)
        self._end.atexit = False

    def release(self, timeout: float | None = None) -> None:
        """Withdraws the slots of this memory, and waits for operations that use it. The buffer is free then.

        While it is registered a second time, the end of that does so. timeout: seconds, default the endpoint's, after which a
        connection is closed whose other end still uses the memory.
        """
        session = self._session()
        if self._end.detach() is not None and session is not None:
            session.drop(self._range, self._asked_for, True, timeout)
        self._keep = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()


def finish(started: Started) -> None:
    """Waits for the end. The buffers live until then, because the caller's frame keeps them."""
    operation, _keep = started
    operation.wait(None)
    operation.check()


def _while_it_lives(session: weakref.ref[Session], call: Callable[..., Any], *arguments: Any) -> None:
    living = session()
    if living is not None:
        call(living, *arguments)


def _close(core: _core.Endpoint, cached: dict[_Range, weakref.finalize[Any, Any]], loans: Loans, watchers: Watchers) -> None:
    for owner in cached.values():
        owner.detach()
    cached.clear()
    core.close()
    loans.close()
    watchers.close()


def _check_fit(nbytes: int, slot: Slot) -> None:
    if nbytes > slot.nbytes:
        raise Mismatch(f"{Mismatch.code}: write or read: {nbytes} bytes for a slot of {slot.nbytes}", "", "write or read")
