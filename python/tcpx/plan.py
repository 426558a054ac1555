"""Plans: buffers and slots that are looked up once, and moved many times."""

from __future__ import annotations

import sys
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
        ranges = _core.ranges_of(buffers, slots, extent_of)
        if len(ranges) != len(ranges.parts) or not len(ranges):
            raise invalid("prepare", "an empty buffer" if len(ranges.parts) else "no buffers")
        if len(ranges.streams) > 1:
            raise invalid("prepare", "the buffers belong to several GPUs, or streams: make a plan for each")
        self._keep = [ranges.parts]
        while (plan := session.core.prepare(ranges)) is None:
            self._keep.append(session.registered_parts(ranges))
        self._plan = plan
        self._session, self._conn = session, conn
        self._readonly = ranges.readonly
        self._owners = _owners_of(ranges.parts)
        self._on_stream = next(iter(ranges.streams.values()), None)
        self._size = len(ranges)

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


def _owners_of(parts: Sequence[Any]) -> list[tuple[Any, int]]:
    """The tensors' storages, which can be resized, and where each is."""
    ndarray = getattr(sys.modules.get("numpy"), "ndarray", None)
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    has_storage = hasattr(tensor, "untyped_storage")
    one_of_each = {}  # by what is below views, which have one owner then, and is kept, because its id is the key
    for part in parts:
        below = None
        if type(part) is ndarray:
            below = part.base
        elif type(part) is tensor:
            below = part.untyped_storage() if has_storage else part._base
        if below is None:
            below = part
        one_of_each[id(below)] = below, part
    owners = {}
    for _, part in one_of_each.values():
        owner = owner_of(part if isinstance(part, Extent) else extent_of(part)).dies
        if hasattr(owner, "data_ptr"):
            owners[id(owner)] = owner, owner.data_ptr()
    return list(owners.values())
