"""Plans: buffers and slots that are looked up once, and moved many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._numbers import numbers_of
from ._session import READ, WRITE, Session, Started, finish
from .buffers import Buffer, Extent, extent_of, owner_of
from .errors import invalid
from .operation import Operation
from .slot import Slot
from .streams import CURRENT, Stream, handle_of

__all__ = ["Plan"]


class Plan:
    """Buffers, and as many slots of the other end: ``plan.write()`` writes each buffer to the beginning of its slot, `read` the other way.

    Made by `Connection.prepare`, for that connection; any thread. It keeps the buffers, and their memory registered. What a call
    costs does not grow with the buffers, apart from what moves. len(plan): how many they are; they are numbered from 0.
    """

    def __init__(self, session: Session, conn: int, buffers: Sequence[Buffer], slots: Sequence[Slot]) -> None:
        extents = [extent_of(buffer) for buffer in buffers]
        local, remote = session.match(extents, slots)
        if len(local) != len(extents) or not local:
            raise invalid("prepare", "an empty buffer" if extents else "no buffers")
        self._keep = [(extent.keep, session.registered(extent)) for extent in extents]
        self._plan = session.core.prepare(local, remote)
        self._session, self._conn = session, conn
        self._readonly = any(extent.readonly for extent in extents)
        self._owners = _owners_of(extents)
        of_streams = {extent.stream: buffer for extent, buffer in zip(extents, buffers) if extent.stream is not None}
        if len(of_streams) > 1:
            raise invalid("prepare", "the buffers belong to several GPUs, or streams: make a plan for each")
        self._on_stream = next(iter(of_streams.values()), None)
        self._size = len(local)

    def __len__(self) -> int:
        return self._size

    def write(
        self, numbers: Any = None, *, timeout: float | None = None, notify: bytes | None = None, stream: Stream = CURRENT
    ) -> None:
        """Writes buffers to their slots. Returns when the bytes are in place there.

        numbers: of the buffers, a numpy array or a list of integers; default all. Else as `Connection.write`.
        """
        finish(self._start(WRITE, numbers, timeout, notify, stream, False))

    def read(
        self, numbers: Any = None, *, timeout: float | None = None, notify: bytes | None = None, stream: Stream = CURRENT
    ) -> None:
        """Reads slots into their buffers. Else as `write`."""
        finish(self._start(READ, numbers, timeout, notify, stream, False))

    def write_async(
        self,
        numbers: Any = None,
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`write` as an `Operation`. The numbers may be changed as soon as it returns."""
        return Operation(self._session, self._start(WRITE, numbers, timeout, notify, stream, event))

    def read_async(
        self,
        numbers: Any = None,
        *,
        timeout: float | None = None,
        notify: bytes | None = None,
        stream: Stream = CURRENT,
        event: bool = False,
    ) -> Operation:
        """`read` as an `Operation`. The numbers may be changed as soon as it returns."""
        return Operation(self._session, self._start(READ, numbers, timeout, notify, stream, event))

    def _start(
        self, kind: int, numbers: Any, timeout: float | None, notify: bytes | None, stream: Stream, event: bool
    ) -> Started:
        if kind == READ and self._readonly:
            raise invalid("read", "one of the plan's buffers is read-only")
        if any(owner.data_ptr() != address for owner, address in self._owners):
            raise invalid("use a plan", "memory of a tensor is elsewhere now: prepare it again")
        if stream is CURRENT:
            current = None if self._on_stream is None else extent_of(self._on_stream).stream
        else:
            current = handle_of(stream)
        some = None if numbers is None else numbers_of("numbers of a plan", numbers)
        started = self._session.core.start_plan(kind, self._conn, self._plan, some, timeout, current, notify, event)
        return started, self

    def __repr__(self) -> str:
        return f"<tcpx.Plan of {self._size} buffers>"


def _owners_of(extents: Sequence[Extent]) -> list[tuple[Any, int]]:
    """The tensors' storages, which can be resized, and where each is."""
    owners = {}
    for extent in extents:
        owner = owner_of(extent).dies
        if hasattr(owner, "data_ptr"):
            owners[id(owner)] = owner, owner.data_ptr()
    return list(owners.values())
