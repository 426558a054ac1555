"""Slots as values: they travel, are cut, and refuse what does not fit; hostile bytes are refused by name."""

from __future__ import annotations

import gc
import pickle
import random
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

import tcpx
from conftest import Pair


def test_a_slot_is_a_value(pair: Pair) -> None:
    target = np.zeros((4, 6), np.float32)
    slot = pair.far.advertise(target)
    for copy in (pickle.loads(pickle.dumps(slot)), tcpx.Slot.from_bytes(bytes(slot))):
        assert copy == slot and hash(copy) == hash(slot) and copy.shape == (4, 6) and copy.nbytes == 96
    part = pickle.loads(pickle.dumps(slot[1:3]))
    pair.there.write(np.ones((2, 6), np.float32), part)
    assert (target == np.repeat([[0], [1], [1], [0]], 6, 1)).all()
    whole = tcpx.Slot.from_bytes(bytes(slot)[:64])  # as C++ ships it
    assert whole.nbytes == 96 and whole.shape == (96,)
    assert "id" not in repr(slot) and str(slot.nbytes) in repr(slot)


def test_cuts(pair: Pair) -> None:
    slot = pair.far.advertise(np.zeros((4, 6), np.float32))
    assert len(slot) == 4 and slot[-1].offset == 72 and slot[1][2].nbytes == 4 and slot[5:2].nbytes == 0
    assert slot.view((8, 3), 4)[7].offset == 84 and slot.bytes(90).nbytes == 6
    with pytest.raises(IndexError):
        slot[4]
    with pytest.raises(TypeError):
        len(slot[0][0])
    for bad in (lambda: slot[::2], lambda: slot.bytes(90, 100), lambda: slot.bytes(-1), lambda: slot.view((5,), 1)):
        with pytest.raises(tcpx.InvalidArgument):
            bad()


def test_cuts_are_those_of_numpy(pair: Pair) -> None:
    array = np.arange(7 * 5 * 3, dtype=np.uint16).reshape(7, 5, 3)
    slot = pair.far.advertise(array)
    first = array.ctypes.data
    ends = (None, -100, -7, -3, 0, 2, 6, 7, 8, 2**70)
    for index in [slice(a, b, c) for a in ends for b in ends for c in (None, 1)] + [*range(-7, 7), np.int64(3), True]:
        part, same = slot[index], array[int(index)] if isinstance(index, bool) else array[index]
        assert isinstance(part, tcpx.Slot) and (part.shape, part.nbytes, part.itemsize) == (same.shape, same.nbytes, 2)
        assert not same.size or part.offset == same.ctypes.data - first
    assert slot[2:5][1][1:].offset == array[2:5][1][1:].ctypes.data - first
    assert slot.bytes(5, 5)[:].nbytes == 0
    for wrong, error in [(i, IndexError) for i in (7, -8, 2**70)] + [(i, TypeError) for i in (1.0, "a", None)]:
        with pytest.raises(error):
            slot[wrong]  # type: ignore[index]
    for step in (2, -1, 2**70):
        with pytest.raises(tcpx.InvalidArgument, match=f"step {min(step, 2**63 - 1)}; rows of a slot are neighbours"):
            slot[::step]
    with pytest.raises(ValueError, match="zero"):
        slot[::0]


def test_a_part_of_a_slot_keeps_the_buffer(pair: Pair) -> None:
    part = pair.far.advertise(np.zeros((4, 8), np.uint8))[1:3][0]
    gc.collect()
    pair.there.write(b"12345678", part)
    again = bytearray(8)
    pair.there.read(again, part)
    assert again == b"12345678"
    part.withdraw()


def test_a_slot_that_its_buffer_keeps_is_collected(pair: Pair) -> None:
    class Array(np.ndarray):
        part: tcpx.Slot

    array = np.zeros(64, np.uint8).view(Array)
    array.part = pair.far.advertise(array)[8:16]
    died = weakref.ref(array.part)
    del array
    gc.collect()
    assert died() is None


def test_a_slot_that_was_not_made() -> None:
    for call in (lambda slot: slot[0], lambda slot: slot.nbytes, repr):
        with pytest.raises(AttributeError):
            call(tcpx.Slot.__new__(tcpx.Slot))


def test_more_bytes_than_the_slot_has(pair: Pair) -> None:
    slot = pair.far.advertise(bytearray(8))
    for call in (pair.there.write, pair.there.read):
        with pytest.raises(tcpx.Mismatch, match="9 bytes for a slot of 8"):
            call(bytearray(9), slot)
        with pytest.raises(tcpx.InvalidArgument, match="2 buffers need as many slots"):
            call([bytearray(1), bytearray(1)], [slot])
        with pytest.raises(TypeError):
            call(bytearray(1), b"no slot")


def test_slots_that_mean_nothing_here(pair: Pair) -> None:
    data = bytes(pair.far.advertise(bytearray(8)))
    forged = tcpx.Slot.from_bytes(data[:16] + bytes(15) + b"\x01" + data[32:])
    with pytest.raises(tcpx.Error):
        pair.there.write(bytes(8), forged)
    own = pair.near.advertise(bytearray(8))  # of the writer's own endpoint
    with pytest.raises(tcpx.Error):
        pair.there.write(bytes(8), own)
    kept = pair.far.advertise(bytearray(8))
    pair.there.write(bytes(8), kept)  # the connection goes on


def test_a_slot_ends_with_its_buffer(pair: Pair) -> None:
    target = np.zeros(1 << 16, np.uint8)
    data = bytes(pair.far.advertise(target))
    pair.there.write(np.ones(1 << 16, np.uint8), tcpx.Slot.from_bytes(data))
    del target
    with pytest.raises(tcpx.Error):
        pair.there.write(np.ones(1 << 16, np.uint8), tcpx.Slot.from_bytes(data))


def test_the_advertising_slot_keeps_the_buffer(pair: Pair) -> None:
    slot = pair.far.advertise(np.zeros(1000, np.uint8))
    pair.there.write(np.ones(1000, np.uint8), tcpx.Slot.from_bytes(bytes(slot)))
    again = np.zeros(1000, np.uint8)
    pair.there.read(again, slot)
    assert again.all()


def test_what_others_may_do(pair: Pair) -> None:
    buffer = bytearray(b"12345678")
    reading, writing = (pair.far.advertise(buffer, access=access) for access in ("read", "write"))
    for call, good, bad in ((pair.there.read, reading, writing), (pair.there.write, writing, reading)):
        call(bytearray(8), good)
        with pytest.raises(tcpx.InvalidArgument, match="only"):
            call(bytearray(8), bad)
    assert buffer == bytes(8)
    for wrong in ("", "rw", None):
        with pytest.raises(tcpx.InvalidArgument, match="read, read-write, write"):
            pair.far.advertise(buffer, access=wrong)  # type: ignore[arg-type]


def test_a_slot_ends_after_its_time(pair: Pair) -> None:
    buffer = bytearray(8)
    stays, later = pair.far.advertise(buffer), pair.back.advertise(buffer, ends_after=3600)
    soon = pair.far.advertise(buffer, ends_after=0.02)
    time.sleep(0.03)
    with pytest.raises(tcpx.NotFound):
        pair.there.read(bytearray(8), soon)
    for slot in (stays, later):
        pair.there.read(bytearray(8), slot)
    soon.withdraw()
    assert pair.far.advertise(buffer) == stays != pair.far.advertise(buffer, ends_after=3600)
    with pytest.raises(tcpx.InvalidArgument):
        pair.far.advertise(buffer, ends_after=-1)


def test_a_slot_that_serves_once(pair: Pair) -> None:
    buffer = bytearray(8)
    once, twice = pair.far.advertise(buffer, uses=1), pair.back.advertise(buffer, uses=2)
    pair.there.write([b"1234", b"5678"], [once.bytes(4), once.bytes(0, 4)])  # both are one operation
    assert buffer == b"56781234"
    for slot, left in ((once, 0), (twice, 2)):
        for _ in range(left):
            pair.there.read(bytearray(8), slot)
        with pytest.raises(tcpx.NotFound):
            pair.there.read(bytearray(8), slot)
    for wrong in (0, -1, 2**32):
        with pytest.raises(tcpx.InvalidArgument, match="at least one"):
            pair.far.advertise(buffer, uses=wrong)


def test_slots_that_have_ended_keep_nothing(pair: Pair) -> None:
    for _ in range(20):
        buffers = [bytearray(8) for _ in range(20)]
        for buffer in buffers:
            pair.far.advertise(buffer, ends_after=0)
        time.sleep(0.002)
    assert pair.far.stats()["registered_regions"] < 200  # of 400
    pair.far.session.loans.sweep()
    assert pair.far.stats()["registered_regions"] == 0
    for buffer in buffers:
        buffer.clear()


def test_garbage_is_refused(pair: Pair) -> None:
    good = bytes(pair.far.advertise(np.zeros((4, 6), np.float32)))
    chance = random.Random(1)
    cases = [b"", b"x" * 64, good[:63], good[:65], good + b"x", good[:-1], good[:76] + b"\xff" + good[77:]]
    for _ in range(2000):
        one = bytearray(good)
        one[chance.randrange(64, len(one))] = chance.randrange(256)
        cases.append(bytes(one))
    refused = 0
    for case in cases:
        try:
            slot = tcpx.Slot.from_bytes(case)
            assert slot.offset + slot.nbytes <= 96
        except tcpx.InvalidArgument:
            refused += 1
    assert refused > 500
    for case in (b"", good, b"TXSL" * 40, bytes(200)):
        with pytest.raises(tcpx.InvalidArgument):
            tcpx.kv.RemotePool.from_bytes(case)


def test_metadata_that_is_garbage(pair: Pair) -> None:
    for case in (b"", b"nonsense", pair.far.metadata[:-1], pair.far.metadata + b"x"):
        with pytest.raises(tcpx.Error):
            pair.near.connect(case, timeout=2)


def test_the_other_end_is_another_process() -> None:
    program = """
import sys, numpy as np, tcpx
ep = tcpx.Endpoint(listen="127.0.0.1")
target = np.zeros(1 << 20, np.uint8)
slot = ep.advertise(target)
print(ep.metadata.hex(), bytes(slot).hex(), flush=True)
conn = ep.accept(20)
while not ep.notifications(20): pass
print(int(target.astype(np.int64).sum()), flush=True)
conn.recv(bytearray(1), timeout=20)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        metadata, slot = (bytes.fromhex(word) for word in other.stdout.readline().split())
        source = np.random.default_rng(3).integers(0, 256, 1 << 20, np.uint8)
        with tcpx.Endpoint(listen="127.0.0.1") as near:
            conn = near.connect(metadata)
            conn.write(source, tcpx.Slot.from_bytes(slot), notify=b"done")
            assert int(other.stdout.readline()) == int(source.astype(np.int64).sum())
            conn.send(b"x")
            assert other.wait(20) == 0
