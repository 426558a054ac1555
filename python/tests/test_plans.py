"""Plans: what their writes and reads move, compared with numpy's, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcpx
from conftest import Pair

ROWS, ROW = 300, 513


class Rows:
    """Every other row of one array here, and of one there, in another order."""

    def __init__(self, pair: Pair) -> None:
        self.here = np.random.default_rng(1).integers(0, 256, (2 * ROWS, ROW), np.uint8)
        self.there = np.zeros((2 * ROWS, ROW), np.uint8)
        self.order = np.random.default_rng(2).permutation(ROWS)
        slot = pair.far.advertise(self.there)
        self.buffers = [self.here[2 * i] for i in range(ROWS)]
        self.slots = [slot[2 * int(i)] for i in self.order]

    def written(self, numbers: Any) -> np.ndarray:
        """What `there` is after a write of these."""
        expected = np.zeros_like(self.there)
        expected[2 * self.order[numbers]] = self.here[2 * np.asarray(numbers)]
        return expected


def test_all_ranges_are_written_and_read(pair: Pair) -> None:
    rows = Rows(pair)
    plan = pair.there.prepare(rows.buffers, rows.slots)
    assert len(plan) == ROWS
    plan.write(notify=b"written")
    assert (rows.there == rows.written(np.arange(ROWS))).all()
    assert [n.data for n in pair.far.notifications(5)] == [b"written"]
    before = rows.here.copy()
    rows.here[:] = 0
    plan.read()
    assert (rows.here[::2] == before[::2]).all() and not rows.here[1::2].any()
    for _ in range(3):  # and as often as one likes
        rows.here[:] += 1
        plan.write_async().wait(10)
        assert (rows.there == rows.written(np.arange(ROWS))).all()


@pytest.mark.parametrize("numbers", [[7], [299, 0, 5], np.arange(1, 200, 3), []])
def test_some_ranges_are_written_and_read(pair: Pair, numbers: Any) -> None:
    rows = Rows(pair)
    plan = pair.there.prepare(rows.buffers, rows.slots)
    numbers = np.asarray(numbers, np.int64)
    started = plan.write_async(numbers)
    taken = numbers.copy()
    numbers += 1  # they may be changed
    started.wait(10)
    assert (rows.there == rows.written(taken)).all()
    rows.there[:] = 9
    before = rows.here.copy()
    plan.read_async(taken).wait(10)
    before[2 * taken] = 9
    assert (rows.here == before).all()


def test_it_keeps_what_it_needs(pair: Pair) -> None:
    rows = Rows(pair)
    expected = rows.written(np.arange(ROWS))
    plan = pair.there.prepare(rows.buffers, rows.slots)
    rows.buffers.clear()
    rows.slots.clear()
    rows.here = np.zeros(1, np.uint8)
    plan.write()
    assert (rows.there == expected).all()


def test_buffers_and_slots_must_fit(pair: Pair) -> None:
    rows = Rows(pair)
    with pytest.raises(tcpx.InvalidArgument, match="300 buffers need as many slots"):
        pair.there.prepare(rows.buffers, rows.slots[1:])
    with pytest.raises(tcpx.Mismatch, match="513 bytes for a slot of 5"):
        pair.there.prepare(rows.buffers[:1], [rows.slots[0].bytes(0, 5)])
    with pytest.raises(tcpx.InvalidArgument, match="an empty buffer"):
        pair.there.prepare([np.zeros(0, np.uint8)], rows.slots[:1])
    with pytest.raises(tcpx.InvalidArgument, match="no buffers"):
        pair.there.prepare([], [])


def test_numbers_are_numbers_of_its_ranges(pair: Pair) -> None:
    rows = Rows(pair)
    plan = pair.there.prepare(rows.buffers, rows.slots)
    for beyond in ([ROWS], [0, -1], [2**40]):
        with pytest.raises(tcpx.InvalidArgument, match=r"range -?\d+ of 300 of the plan"):
            plan.write(beyond)
    with pytest.raises(TypeError, match="numbers of a plan are integers"):
        plan.write([0.5])
    with pytest.raises(tcpx.InvalidArgument, match="2 dimensions"):
        plan.read(np.zeros((2, 2), np.int64))
    assert not rows.there.any()


def test_what_is_readonly_is_not_read_into(pair: Pair) -> None:
    target = np.zeros(5, np.uint8)
    plan = pair.there.prepare([b"12345"], [pair.far.advertise(target)])
    plan.write()
    assert bytes(target) == b"12345"
    with pytest.raises(tcpx.InvalidArgument, match="read-only"):
        plan.read()


def test_a_withdrawn_slot_ends_its_ranges(pair: Pair) -> None:
    target = np.zeros(5, np.uint8)
    slot = pair.far.advertise(target)
    plan = pair.there.prepare([b"12345"], [slot])
    slot.withdraw()
    with pytest.raises(tcpx.NotFound):
        plan.write()
    assert not target.any()


def test_a_tensor_that_has_moved_is_not_touched(pair: Pair) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones(16, dtype=torch.uint8)
    target = np.zeros(16, np.uint8)
    plan = pair.there.prepare([tensor[:16]], [pair.far.advertise(target)])
    plan.write()
    assert target.all()
    target[:] = 0
    tensor.resize_(1 << 20)
    with pytest.raises(tcpx.InvalidArgument, match="prepare it again"):
        plan.write()
    assert not target.any()


def test_one_of_many_tensors_that_has_moved(pair: Pair) -> None:
    torch = pytest.importorskip("torch")
    tensors = [torch.ones(16, dtype=torch.uint8) for _ in range(3)]
    parts = [tensor[i : i + 4] for i in (0, 8) for tensor in tensors] + [np.ones(4, np.uint8), bytes(4)]
    target = np.zeros(4, np.uint8)
    plan = pair.there.prepare(parts, [pair.far.advertise(target)] * len(parts))
    plan.write()
    tensors[1].resize_(1 << 20)
    with pytest.raises(tcpx.InvalidArgument, match="prepare it again"):
        plan.write()

