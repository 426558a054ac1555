"""Tensors that other ranks read when they like: what is published, and how a reader knows that nobody wrote meanwhile.

The store holds, for each name and rank, where two things are, which are read one-sidedly like the tensors: a table of names,
types, shapes and slots, a line for each name, and 8 bytes of state, 2 * version while the tensors may be read, one more while they
are being changed. A reader reads the state before the tensors and after them, and believes the bytes if it was the same and even.

Of a table a reader takes apart only the lines of the names that it wants, each at most `_LONGEST_ROW` bytes beside the name: what
another process can make it do is bounded by that, and by looking over `LONGEST_MANIFEST` bytes once.
"""

from __future__ import annotations

import ctypes
import io
import json
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..buffers import Buffer
from ..endpoint import Connection
from ..errors import Cancelled, Error, NotFound, PeerGone, Timeout, invalid
from ..operation import Operation
from ..slot import Slot
from .foreign import integer, items, json_of, reading, slot_of, text, text_of
from .manifest import LONGEST_MANIFEST, Tensor, mismatch
from .reads import abandon, register, start_reads
from .shard import Box, Shard, common_runs
from .station import Station

__all__ = ["Publication", "read_into"]

_STATE = struct.Struct("<Q")
_CLOSED = 2**64 - 1
#: 64 dimensions thrice, with 20 digits each, and a slot.
_LONGEST_ROW = 8192
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1


class Part(NamedTuple):
    """A tensor of this process as a part of a published one."""

    tensor: Tensor
    box: Box
    shape: tuple[int, ...]


def parts_of(state_dict: Mapping[str, Buffer | Shard]) -> dict[str, Part]:
    """The tensors of a state dict, whole or shards."""
    parts = {}
    for name, value in state_dict.items():
        if not isinstance(name, str):
            raise TypeError(f"a state dict's names are text, not {type(name).__name__}: {name!r}")
        tensor = Tensor(name, value.buffer if isinstance(value, Shard) else value)
        box, shape = Box((0,) * len(tensor.shape), tensor.shape), tensor.shape
        if isinstance(value, Shard):
            box, shape = value.box, value.shape
        if box.shape != tensor.shape:
            raise invalid("use a shard", f"{name!r}: its buffer has the shape {list(tensor.shape)}, its slices {list(box.shape)}")
        parts[name] = Part(tensor, box, shape)
    return parts


class Publication:
    """Tensors that are readable by the ranks of a group, until `close`, or another publication under the same name.

    version: what readers get; raised by `update`. Any thread, one at a time.
    """

    def __init__(self, station: Station, name: str, state_dict: Mapping[str, Buffer | Shard], version: int) -> None:
        if not 0 <= version < 2**62:
            raise invalid("publish", f"version {version}")
        self.version = version
        self._parts = parts_of(state_dict)
        self._finish_work()
        endpoint = station.group.endpoint
        tensors = [part.tensor for part in self._parts.values()]
        self._registrations = register(endpoint, tensors)
        self._slots = [endpoint.advertise(tensor.bytes(), access="read") if tensor.nbytes else None for tensor in tensors]
        rows = [_row_of(name, part, slot) for (name, part), slot in zip(self._parts.items(), self._slots)]
        table = b"".join(rows)
        if len(table) > LONGEST_MANIFEST:
            raise invalid("publish", f"its names and shapes take {len(table)} bytes")
        # Both are objects of ctypes, whose end is seen, so that their slots end with the publication.
        self._state = ctypes.create_string_buffer(_STATE.pack(2 * version), _STATE.size)
        self._table_slot = endpoint.advertise(ctypes.create_string_buffer(table, len(table)), access="read")
        self._state_slot = endpoint.advertise(self._state, access="read")
        record = json.dumps({"table": _text(self._table_slot), "state": _text(self._state_slot)})
        station.group.store.set(_key(name, station.group.rank), record)

    @contextmanager
    def update(self, version: int | None = None) -> Iterator[None]:
        """``with publication.update():`` the tensors may be changed. Readers wait until it ends, or read once more.

        version: after it; default: one more. After an exception in it nobody reads the tensors until the next `update`.
        """
        new = self.version + 1 if version is None else version
        if not self.version < new < 2**62:
            raise invalid("update", f"version {new} after {self.version}")
        self._set(2 * self.version + 1)
        yield
        self._finish_work()
        self.version = new
        self._set(2 * new)

    def close(self) -> None:
        """Ends it: nobody reads the tensors any more when it returns."""
        self._set(_CLOSED)
        for slot in self._slots:
            if slot is not None:
                slot.withdraw()
        for registration in self._registrations:
            registration.release()
        self._registrations = []

    def _set(self, state: int) -> None:
        if _STATE.unpack(self._state)[0] == _CLOSED:
            raise Cancelled(f"{Cancelled.code}: publish: the publication is closed", "", "publish", "closed")
        _STATE.pack_into(self._state, 0, state)

    def _finish_work(self) -> None:
        for part in self._parts.values():
            part.tensor.finish_work()


class _Row(NamedTuple):
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    box: Box
    gpu: bool
    slot: Slot | None


class _Original:
    """What one rank has published, as a reader sees it. record: says where; rows: of the tensors that are wanted, once read."""

    def __init__(self, name: str, rank: int, record: str, connection: Connection, deadline: float) -> None:
        self.rank = rank
        self.record = record
        self.connection = connection
        self.rows: dict[str, _Row] = {}
        self._deadline = deadline
        with reading(f"the record of {name!r} of rank {rank}"):
            places = json_of(record)
            self.table, self.state = slot_of(places["table"]), slot_of(places["state"])
            if self.table.nbytes > LONGEST_MANIFEST or self.state.nbytes != _STATE.size:
                raise ValueError(f"a table of {self.table.nbytes} bytes, a state of {self.state.nbytes}")

    def left(self) -> float:
        """Seconds, for an operation."""
        return max(self._deadline - time.monotonic(), 0.001)

    def read(self, ranges: Iterable[tuple[Tensor, int, bool, Slot]]) -> list[Operation]:
        """See `start_reads`."""
        return start_reads(self.connection, ranges, self.left())


def _read_slots(slots: Sequence[tuple[_Original, Slot]]) -> list[bytearray]:
    """The bytes of all of them, which are under way at the same time."""
    data = [bytearray(slot.nbytes) for _, slot in slots]
    running: list[Operation] = []
    try:
        for (original, slot), room in zip(slots, data):
            running.append(original.connection.read_async(room, slot, timeout=original.left(), stream=None))
        for operation in running:
            operation.wait()
    except BaseException:
        abandon(running)
        raise
    return data


def read_into(
    station: Station, name: str, ranks: Sequence[int], parts: Mapping[str, Part], timeout: float, newer_than: int
) -> int:
    """Reads parts of what the ranks have published under a name, all of one version, which is returned."""
    for part in parts.values():
        if part.tensor.readonly:
            raise invalid("fetch", f"tensor {part.tensor.name!r} is read-only")
        part.tensor.finish_work()
    registrations = register(station.group.endpoint, [part.tensor for part in parts.values()])
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    why: Error | None = None
    known: dict[int, _Original] = {}
    try:
        while True:
            try:
                version = _try_read(station, name, ranks, parts, deadline, newer_than, known)
                if version is not None:
                    return version
                newer = f"newer than {newer_than} " if newer_than >= 0 else ""
                said = f"ranks {list(ranks)} have no one version {newer}of {name!r} that stayed unchanged, within {timeout:g} s"
                why = Timeout(f"{Timeout.code}: fetch: {said}", "", "fetch", said)
            except (PeerGone, NotFound, Cancelled) as error:
                why = error  # it has ended: there may be another one
                known.clear()
                now = {rank: one for rank, one in station.group.connected().items() if rank in ranks}
                for rank in station.gone(now):
                    station.group.drop(rank, now[rank])
                for rank in ranks:
                    station.group.renew(rank)
            except Timeout as error:
                # The deadline has come while the last look was under way; what the looks before it have seen says more.
                raise why or error from None
            if time.monotonic() >= deadline:
                raise why
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    finally:
        for registration in registrations:
            registration.release()


def _try_read(
    station: Station,
    name: str,
    ranks: Sequence[int],
    parts: Mapping[str, Part],
    deadline: float,
    newer_than: int,
    known: dict[int, _Original],
) -> int | None:
    """known: by rank, what has been seen of them. A look that finds nothing new reads their states alone."""
    new = []
    for rank in ranks:
        left = max(deadline - time.monotonic(), 0.0)
        record = station.group.store.wait(_key(name, rank), left, f"rank {rank}")
        connection = station.group.connection(rank, left)
        if rank not in known or known[rank].record != record or known[rank].connection is not connection:
            known[rank] = _Original(name, rank, record, connection, deadline)
            new.append(known[rank])
    originals = [known[rank] for rank in ranks]
    data = _read_slots([*((one, one.state) for one in originals), *((one, one.table) for one in new)])
    for original, table in zip(new, data[len(originals) :]):
        with reading(f"the table of {name!r} of rank {original.rank}"):
            original.rows = _rows_in(table, parts)
    states = [int(_STATE.unpack(state)[0]) for state in data[: len(originals)]]
    if len(set(states)) != 1 or states[0] % 2 != 0 or states[0] // 2 <= newer_than:
        return None
    plan = [(original, list(_ranges_of(original, others, parts))) for original, others in _with_earlier(originals)]
    _check_cover(originals, parts, plan)
    operations = [operation for original, ranges in plan for operation in original.read(ranges)]
    failed: list[Error] = []
    for operation in operations:
        try:
            operation.wait()
        except Error as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return states[0] // 2 if _read_slots([(one, one.state) for one in originals]) == data[: len(originals)] else None


def _with_earlier(originals: Sequence[_Original]) -> Iterator[tuple[_Original, Sequence[_Original]]]:
    for index, original in enumerate(originals):
        yield original, originals[:index]


def _ranges_of(
    original: _Original, earlier: Sequence[_Original], parts: Mapping[str, Part]
) -> Iterator[tuple[Tensor, int, bool, Slot]]:
    """What one rank has of the parts, without what an earlier one has just as well."""
    for name, part in parts.items():
        row = original.rows.get(name)
        if row is None or any(name in other.rows and other.rows[name].box == row.box for other in earlier):
            continue
        mine, theirs = (part.tensor.dtype, part.tensor.itemsize, part.shape), (row.dtype, row.itemsize, row.shape)
        if mine != theirs:
            said = [f"{dtype} of shape {list(shape)}" for dtype, _, shape in (theirs, mine)]
            raise mismatch(f"tensor {name!r} is {said[0]} at rank {original.rank} and {said[1]} here")
        for there, here, count in common_runs(row.box, part.box):
            size = row.itemsize
            assert row.slot is not None
            yield part.tensor, here * size, row.gpu, row.slot.bytes(there * size, (there + count) * size)


def _check_cover(originals: Sequence[_Original], parts: Mapping[str, Part], plan: Iterable[tuple[_Original, list[Any]]]) -> None:
    found = dict.fromkeys(parts, 0)
    for _, ranges in plan:
        for tensor, _, _, slot in ranges:
            found[tensor.name] += slot.nbytes
    ranks = [original.rank for original in originals]
    for name, part in parts.items():
        if not any(name in original.rows for original in originals):
            raise mismatch(f"tensor {name!r} is published by none of the ranks {ranks}")
        if found[name] != part.tensor.nbytes:
            covered = f"{found[name]} of its {part.tensor.nbytes} bytes"
            raise mismatch(f"tensor {name!r}: ranks {ranks} have {covered}; shards must cover it and not overlap")


def _row_of(name: str, part: Part, slot: Slot | None) -> bytes:
    tensor = part.tensor
    row = [tensor.dtype, tensor.itemsize, part.shape, part.box.at, part.box.shape, tensor.gpu, _text(slot)]
    return f"{json.dumps(name)}\t{json.dumps(row)}\n".encode()


def _rows_in(table: bytes | bytearray, names: Iterable[str]) -> dict[str, _Row]:
    """The lines of those names; others are not looked into."""
    wanted = {json.dumps(name).encode(): name for name in names}
    rows = {}
    for line in io.BytesIO(table):
        name, tab, row = line.partition(b"\t")
        if not tab:
            raise ValueError("a line without a name")
        if name in wanted:
            if len(row) > _LONGEST_ROW:
                raise ValueError(f"the line of {wanted[name]!r} has {len(line)} bytes")
            rows[wanted[name]] = _read_row(json_of(row))
    return rows


def _read_row(row: Any) -> _Row:
    dtype, itemsize, shape, at, lengths, gpu, slot = items(row, 7)
    box = Box(tuple(map(integer, items(at))), tuple(map(integer, items(lengths))))
    one = _Row(text(dtype), integer(itemsize, 1), tuple(map(integer, items(shape))), box, bool(gpu), None)
    if not len(box.at) == len(box.shape) == len(one.shape) <= 64:
        raise ValueError("a shape is wrong")
    for first, length, whole in zip(box.at, box.shape, one.shape):
        if first > whole or length > whole - first:
            raise ValueError("a shard lies outside of its tensor")
    if box.elements == 0:
        return one
    place = slot_of(slot)
    if place.nbytes != box.elements * one.itemsize:
        raise ValueError(f"a slot has {place.nbytes} bytes")
    return one._replace(slot=place)


def _text(slot: Slot | None) -> str | None:
    return None if slot is None else text_of(bytes(slot))


def _key(name: str, rank: int) -> str:
    return f"published/{name}/{rank}"
