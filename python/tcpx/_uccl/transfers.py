"""Connections, memory and transfers of `tcpx.uccl` by their numbers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from operator import index

from .. import _core
from .._session import READ, RECV, SEND, WRITE
from ..errors import NotFound, invalid
from ..slot import Terms
from .memory import Memories

__all__ = ["READ", "RECV", "SEND", "WRITE", "Places", "Ranges", "Transfers"]

Ranges = list[tuple[int, int]]  #: address and length of each
Places = list[tuple[bytes, int]]  #: slot of each, and where in it
_Ints = Sequence[int]


class Transfers:
    """What an endpoint has under way. Any thread.

    memories: registrations, whose numbers the calls take.
    """

    def __init__(self, core: _core.Endpoint) -> None:
        self.memories = Memories(core)
        self._core = core
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._connections: dict[int, int] = {}  # the core's number of each that was handed out, and back
        self._handed_out: dict[int, int] = {}
        self._operations: dict[int, _core.Operation] = {}

    # ---- connections

    def hand_out(self, core_id: int) -> int:
        """Our number of a connection: another one after its removal, because the core may keep it and give the same again."""
        with self._lock:
            if core_id not in self._handed_out:
                conn_id = next(self._ids)
                self._handed_out[core_id] = conn_id
                self._connections[conn_id] = core_id
            return self._handed_out[core_id]

    def hand_out_remote(self, metadata: bytes, timeout: float) -> int:
        """The same for the connection to an endpoint, which is made when there is none."""
        core_id = self._core.connect_metadata(metadata, timeout)
        if core_id in self._handed_out:
            self._core.remove(core_id)  # each `connect_metadata` counts there; here the first does
        return self.hand_out(core_id)

    def knows(self, conn_id: int) -> bool:
        """Whether there is a connection with that number."""
        return conn_id in self._connections

    def core_id(self, conn_id: int) -> int:
        """The core's number of a connection. Raises `tcpx.NotFound`."""
        core_id = self._connections.get(conn_id)
        if core_id is None:
            raise _unknown("connection", conn_id)
        return core_id

    def remove_connection(self, conn_id: int) -> None:
        """Its transfers fail."""
        with self._lock:
            core_id = self.core_id(conn_id)
            del self._connections[conn_id], self._handed_out[core_id]
        self._core.remove(core_id)

    # ---- arguments

    def one(self, mr_id: int, ptr: int, size: int) -> Ranges:
        """A range, checked against its registration."""
        return [self.memories.range(mr_id, ptr, size)]

    def many(self, mr_ids: _Ints, ptrs: _Ints, sizes: _Ints, count: int) -> Ranges:
        """`count` ranges, each checked against its registration."""
        _check_lengths(count, mr_ids, ptrs, sizes)
        return [self.memories.range(*one) for one in zip(mr_ids[:count], ptrs, sizes)]

    def pairs(
        self, mr_ids: _Ints, ptrs: _Ints, sizes: _Ints, metas: Sequence[bytes], count: int
    ) -> tuple[Ranges, Places]:
        """`count` ranges, and what another process advertised for each. The core checks those, and that a range fits."""
        _check_lengths(count, metas)
        places = [(meta if type(meta) is bytes else bytes(memoryview(meta)), 0) for meta in metas[:count]]
        return self.many(mr_ids, ptrs, sizes, count), places

    def advertise(self, conn_id: int | None, mr_ids: Sequence[int], ranges: Ranges) -> list[bytes]:
        """A slot for each range, for the other end of a connection or, without one, for all."""
        core_id = None if conn_id is None else self.core_id(conn_id)
        return [
            self._core.advertise(
                core_id, self.memories.region_of(mr_id), address, nbytes, self.memories.stream_of(mr_id), *Terms()
            )
            for mr_id, (address, nbytes) in zip(mr_ids, ranges)
        ]

    # ---- transfers

    def begin(self, kind: int, conn_id: int, ranges: Ranges, places: Places | None = None) -> tuple[bool, int]:
        """True, and the number that `poll` takes."""
        operation = self._start(kind, conn_id, ranges, places or [])
        transfer_id = next(self._ids)
        self._operations[transfer_id] = operation
        return True, transfer_id

    def perform(self, kind: int, conn_id: int, ranges: Ranges, places: Places | None = None) -> bool:
        """True, when it has ended well."""
        operation = self._start(kind, conn_id, ranges, places or [])
        operation.wait(None)
        operation.check()
        return True

    def poll(self, transfer_id: int) -> bool:
        """Whether a transfer has ended. Raises what went wrong; its end is told once, then it raises `tcpx.NotFound`."""
        operation = self._operations.get(transfer_id)
        if operation is not None and not operation.done():
            return False
        if self._operations.pop(transfer_id, None) is None or operation is None:
            raise _unknown("transfer", transfer_id)
        operation.check()
        return True

    def _start(self, kind: int, conn_id: int, ranges: Ranges, places: Places) -> _core.Operation:
        moved = [nbytes != 0 for _, nbytes in ranges]
        if not all(moved):
            ranges, places = list(itertools.compress(ranges, moved)), list(itertools.compress(places, moved))
        # No stream to wait for: programs written for UCCL see to it that GPU memory is complete.
        pairs = _core.ranges_of_pairs(ranges, places)
        started = self._core.start_many(kind, self.core_id(conn_id), pairs, None, None, None, False)
        if started is None:
            raise NotFound(f"{NotFound.code}: find memory: not all of it is registered", "", "find memory")
        return started


def _check_lengths(count: int, *vectors: Sequence[object]) -> None:
    """Raises `tcpx.InvalidArgument` when one has fewer than `count` entries."""
    if index(count) < 0 or min(map(len, vectors)) < count:
        lengths = ", ".join(str(len(one)) for one in vectors)
        raise invalid("take vectors", f"num_iovs is {count}, and the vectors have {lengths} entries")


def _unknown(what: str, number: object) -> NotFound:
    return NotFound(f"{NotFound.code}: {what}: there is no {what} {number}", "", what, f"there is no {what} {number}")
