"""What is advertised stays usable until its buffer dies or it is withdrawn, whatever else dies: for every kind of buffer."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import threading
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcpx
from conftest import Lent, Pair

NBYTES = 4096
PATTERN = bytes(range(256)) * (NBYTES // 256)


class Memory:
    """A buffer, and how to make views of it, all of the same bytes."""

    def __init__(self, keep: Any, view: Callable[[Any], Any], *, seen: bool) -> None:
        self.keep = keep
        self.view = view
        self.seen = seen  # whether the end of `keep` can be seen


def of_map(length: int) -> mmap.mmap:
    return mmap.mmap(-1, length)


def of_torch() -> Any:
    torch = pytest.importorskip("torch")
    try:
        torch.zeros(1).numpy()
    except RuntimeError as error:
        pytest.skip(f"torch and numpy do not fit: {error}")
    return torch


def same(buffer: Any) -> Any:
    return buffer


def array_of(buffer: Any) -> Any:
    return np.frombuffer(buffer, np.uint8)


def rows_of(buffer: Any) -> Any:
    return buffer[:]


def make(kind: str, folder: Path) -> Memory:
    if kind == "bytearray":
        return Memory(bytearray(NBYTES), same, seen=False)
    if kind == "array":
        return Memory(array.array("B", bytes(NBYTES)), same, seen=False)
    if kind == "mmap":
        return Memory(of_map(NBYTES), same, seen=False)
    if kind == "ctypes":
        return Memory((ctypes.c_ubyte * NBYTES)(), same, seen=True)
    if kind == "field of a ctypes structure":
        fields = [("head", ctypes.c_ubyte * 8), ("body", ctypes.c_ubyte * NBYTES)]
        return Memory(type("Whole", (ctypes.Structure,), {"_fields_": fields})(), lambda whole: whole.body, seen=True)
    if kind == "memoryview of a bytearray":
        return Memory(bytearray(NBYTES), memoryview, seen=False)
    if kind == "memoryview of numpy":
        return Memory(np.zeros(NBYTES, np.uint8), memoryview, seen=True)
    if kind == "numpy":
        return Memory(np.zeros(NBYTES, np.uint8), rows_of, seen=True)
    if kind == "numpy of ctypes":
        return Memory((ctypes.c_ubyte * NBYTES)(), array_of, seen=True)
    if kind == "memmap":
        return Memory(np.memmap(folder / "file", np.uint8, "w+", shape=NBYTES), rows_of, seen=True)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        return Memory(torch.zeros(NBYTES, dtype=torch.uint8), rows_of, seen=True)
    if kind == "numpy of torch":
        torch = of_torch()
        # The array is kept, too: before torch 2.1 nobody sees that its memory lives on in the tensor.
        return Memory(torch.zeros(NBYTES, dtype=torch.uint8).numpy(), rows_of, seen=True)
    assert kind == "dlpack"
    lent = Lent(np.zeros(NBYTES, np.uint8))
    if not np.from_dlpack(lent).flags.writeable:
        pytest.skip("this numpy takes over memory by DLPack to read it only")
    return Memory(lent, same, seen=False)


pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy")
KINDS = [
    "bytearray", "array", "mmap", "ctypes", "field of a ctypes structure", "memoryview of a bytearray", "memoryview of numpy",
    "numpy", "numpy of ctypes", "memmap", "torch", "numpy of torch", "dlpack",
]  # fmt: skip


@pytest.fixture(params=KINDS)
def memory(request: Any, tmp_path: Path) -> Iterator[Memory]:
    yield make(request.param, tmp_path)
    gc.collect()


def try_it(pair: Pair, raw: bytes) -> None:
    """Writes and reads as another process does, which has nothing but the slot's bytes."""
    slot = tcpx.Slot.from_bytes(raw)
    pair.there.write(PATTERN, slot)
    got = bytearray(NBYTES)
    pair.there.read(got, slot)
    assert got == PATTERN


def expect_gone(pair: Pair, raw: bytes) -> None:
    for call in (pair.there.write, pair.there.read):
        with pytest.raises(tcpx.NotFound, match="no such advertisement, or it was withdrawn"):
            call(bytearray(NBYTES), tcpx.Slot.from_bytes(raw))


def regions(endpoint: tcpx.Endpoint) -> tuple[int, int]:
    gc.collect()
    stats = endpoint.stats()
    return stats["registered_regions"], stats["advertised_ranges"]


def test_another_view_that_dies_takes_no_slot_along(pair: Pair, memory: Memory) -> None:
    first, second = memory.view(memory.keep), memory.view(memory.keep)
    pair.far.advertise(first)
    raw = bytes(pair.far.advertise(second))
    pair.back.send(first)  # registers it for that, too
    pair.there.recv(bytearray(NBYTES))
    del first
    gc.collect()
    try_it(pair, raw)
    got = bytearray(NBYTES)
    pair.back.send(second)
    pair.there.recv(got)
    assert got == PATTERN


def test_a_shipped_slot_is_good_while_its_buffer_lives_and_no_longer(pair: Pair, memory: Memory) -> None:
    before = regions(pair.far)
    raw = bytes(pair.far.advertise(memory.view(memory.keep)))
    gc.collect()
    try_it(pair, raw)
    assert bytes(pair.far.advertise(memory.view(memory.keep)))[:64] == raw[:64], "the same slot again"
    memory.keep = None
    if memory.seen:
        assert regions(pair.far) == before
        expect_gone(pair, raw)
    else:
        gc.collect()
        try_it(pair, raw)


@pytest.mark.parametrize("memory", ["bytearray", "numpy"], indirect=True)  # one whose end is not seen, and one whose end is
def test_a_slot_that_is_withdrawn(pair: Pair, memory: Memory) -> None:
    before = regions(pair.far)
    slot = pair.far.advertise(memory.view(memory.keep))
    raw = bytes(slot)
    slot.bytes(0, 10).withdraw()  # as a whole, by any part
    expect_gone(pair, raw)
    assert regions(pair.far) == before
    slot.withdraw()
    again = bytes(pair.far.advertise(memory.view(memory.keep)))
    assert again[:64] != raw[:64]
    slot.withdraw()  # that of the past
    expect_gone(pair, raw)
    try_it(pair, again)
    pair.far.close()
    slot.withdraw()


def test_a_tensor_and_its_array(pair: Pair) -> None:
    tensor = of_torch().zeros(NBYTES, dtype=of_torch().uint8)
    raws = []
    for kept in range(2):
        both = [tensor, tensor.numpy()]
        raws = [bytes(pair.far.advertise(one)) for one in both]
        both[1 - kept] = None
        gc.collect()
        try_it(pair, raws[kept])
        assert both[kept][5] == 5
    del both, tensor
    gc.collect()
    expect_gone(pair, raws[1])


def test_views_of_shared_memory(pair: Pair) -> None:
    shared = shared_memory.SharedMemory(create=True, size=NBYTES)
    try:
        first, second = (np.ndarray(NBYTES, np.uint8, shared.buf) for _ in range(2))
        raws = [bytes(pair.far.advertise(view)) for view in (first, second, shared.buf)]
        del first
        gc.collect()
        for raw in raws[1:]:
            try_it(pair, raw)
        assert bytes(second) == PATTERN
        pair.far.advertise(shared.buf).withdraw()  # the range's slot, which both have
        expect_gone(pair, raws[1])
        raw = bytes(pair.far.advertise(second))
        with pytest.raises(BufferError):
            shared._mmap.close()  # type: ignore[attr-defined]
        try_it(pair, raw)
        del second
        gc.collect()
        expect_gone(pair, raw)
    finally:
        shared.close()
        shared.unlink()


def test_memory_cannot_be_freed_by_hand_while_it_is_advertised(pair: Pair, tmp_path: Path) -> None:
    plain, mapped = bytearray(NBYTES), of_map(NBYTES)
    numbers = array.array("B", bytes(NBYTES))
    file = np.memmap(tmp_path / "file", np.uint8, "w+", shape=NBYTES)
    frees = (plain.clear, mapped.close, lambda: numbers.append(1), file._mmap.close)  # type: ignore[attr-defined]
    for buffer, free in zip((plain, mapped, numbers, file), frees):
        slot = pair.far.advertise(buffer)
        raw = bytes(slot)
        with pytest.raises(BufferError):
            free()
        try_it(pair, raw)
        slot.withdraw()
        if buffer is not file:
            del slot
            free()
    del file


def test_slots_of_parts_end_by_themselves(pair: Pair) -> None:
    owner = np.zeros((4, NBYTES), np.uint8)
    before = regions(pair.far)
    slots = [pair.far.advertise(owner[row]) for row in range(4)]
    assert regions(pair.far) == (before[0] + 1, before[1] + 4)
    slots[1].withdraw()
    expect_gone(pair, bytes(slots[1]))
    for row in (0, 2, 3):
        try_it(pair, bytes(slots[row]))
    for slot in slots:
        slot.withdraw()
    assert regions(pair.far) == before


def test_a_registration_that_is_released_ends_the_slots(pair: Pair) -> None:
    buffer = bytearray(2 * NBYTES)
    with pair.far.register(buffer):
        outer = pair.far.register(buffer)
        raws = [bytes(pair.far.advertise(memoryview(buffer)[first : first + NBYTES])) for first in (0, NBYTES)]
        outer.release()
        for raw in raws:
            try_it(pair, raw)
    for raw in raws:
        expect_gone(pair, raw)
    buffer.clear()


def test_slots_for_one_connection_end_with_it(pair: Pair) -> None:
    before = regions(pair.far)
    accepted: list[tcpx.Connection] = []
    with tcpx.Endpoint(listen="127.0.0.1") as other:
        accepting = threading.Thread(target=lambda: accepted.append(pair.far.accept(20)))
        accepting.start()
        there = other.connect(pair.far.metadata)
        accepting.join()
        buffer = bytearray(NBYTES)
        slot = tcpx.Slot.from_bytes(bytes(accepted[0].advertise(buffer)))
        there.write(PATTERN, slot)
        expect_gone(pair, bytes(slot))  # for another connection
        accepted[0].close()
    assert regions(pair.far) == before
    buffer.clear()


def test_slots_for_many_connections_do_not_add_up(pair: Pair) -> None:
    buffers = []
    accepted: list[tcpx.Connection] = []
    before = regions(pair.far)
    for _ in range(4):
        with tcpx.Endpoint(listen="127.0.0.1") as other:
            accepting = threading.Thread(target=lambda: accepted.append(pair.far.accept(20)))
            accepting.start()
            there = other.connect(pair.far.metadata)
            accepting.join()
            for _ in range(50):
                buffers.append(bytearray(8))
                accepted[-1].advertise(buffers[-1])
            there.send(b"x")
            accepted[-1].recv(bytearray(1))
        with pytest.raises(tcpx.Error):
            accepted[-1].recv(bytearray(1), timeout=20)  # it is seen that the other end has gone
    accepted[-1].close()
    assert regions(pair.far) == before


def test_a_slot_is_withdrawn_where_it_was_advertised(pair: Pair) -> None:
    with pytest.raises(tcpx.InvalidArgument, match="advertised elsewhere"):
        tcpx.Slot.from_bytes(bytes(pair.far.advertise(bytearray(8)))).withdraw()


def test_threads_advertise_and_withdraw(pair: Pair) -> None:
    before = regions(pair.far)
    owner, failures = np.zeros(NBYTES, np.uint8), []

    def some() -> None:
        try:
            for _ in range(300):
                pair.far.advertise(owner).withdraw()
                pair.far.advertise(np.zeros(8))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    raw = bytes(pair.far.advertise(owner))
    try_it(pair, raw)
    del owner
    assert regions(pair.far) == before
