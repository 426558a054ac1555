"""Blocks by number, compared with numpy's own indexing."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

import tcpx
from conftest import Pair
from tcpx.kv import KvPool, RemotePool

BLOCKS, BLOCK_BYTES = 300, 1024


def pool(seed: int | None = None) -> KvPool:
    tensor = np.zeros((BLOCKS, BLOCK_BYTES), np.uint8)
    if seed is not None:
        tensor[:] = np.random.default_rng(seed).integers(0, 256, tensor.shape, np.uint8)
    return KvPool(tensor, BLOCK_BYTES)


def test_scattered_blocks(pair: Pair) -> None:
    here, there = pool(1), pool()
    chance = np.random.default_rng(2)
    local, remote = chance.permutation(BLOCKS)[:100], chance.permutation(BLOCKS)[:100]
    pair.there.write_blocks(here, local, remote, remote=there.advertise(pair.far), notify=b"all")
    expected = np.zeros((BLOCKS, BLOCK_BYTES), np.uint8)
    expected[remote] = here.tensor[local]
    assert (there.tensor == expected).all()
    assert [n.data for n in pair.far.notifications(5)] == [b"all"]
    back = pool()
    pair.there.read_blocks(back, local.tolist(), remote.astype(np.uint32), remote=pickle.loads(pickle.dumps(there.advertise(pair.far))))
    assert (back.tensor[local] == here.tensor[local]).all()


def test_more_blocks_than_one_round_takes(pair: Pair) -> None:
    count = 40000  # the library moves 16384 ranges at once
    here = KvPool(np.random.default_rng(1).integers(0, 256, count * 16, np.uint8), 16)
    there = KvPool(np.zeros(count * 16, np.uint8), 16)
    order = np.random.default_rng(2).permutation(count)
    pair.there.write_blocks(here, order, order[::-1], remote=there.advertise(pair.far))
    assert (there.tensor.reshape(count, 16)[order[::-1]] == here.tensor.reshape(count, 16)[order]).all()


def test_pools_are_exchanged(pair: Pair) -> None:
    here, there = pool(1), pool()
    found: list[RemotePool] = []
    other = threading.Thread(target=lambda: found.append(there.exchange(pair.back, 10)))
    other.start()
    remote = here.exchange(pair.there, 10)
    other.join()
    assert (remote.blocks, remote.block_bytes, len(found)) == (BLOCKS, BLOCK_BYTES, 1)
    pair.there.write_blocks(here, [5], [7])
    pair.back.read_blocks(there, [9], [5])
    assert (there.tensor[7] == here.tensor[5]).all() and (there.tensor[9] == here.tensor[5]).all()


def test_the_ids_may_change_at_once(pair: Pair) -> None:
    here, there = pool(1), pool()
    local = np.arange(BLOCKS)
    operation = pair.there.write_blocks_async(here, local, local, remote=there.advertise(pair.far))
    local[:] = 0
    operation.wait(10)
    assert (there.tensor == here.tensor).all()


@pytest.mark.parametrize(
    ("local", "remote", "error"),
    [
        ([0], [BLOCKS], tcpx.InvalidArgument),
        ([BLOCKS], [0], tcpx.InvalidArgument),
        ([-1], [0], tcpx.InvalidArgument),
        ([2**63 - 1], [0], tcpx.InvalidArgument),
        ([0, 1], [0], tcpx.InvalidArgument),
        ([[0]], [[0]], tcpx.InvalidArgument),
        ([0.5], [0], TypeError),
        (["a"], [0], TypeError),
    ],
)
def test_numbers_of_no_block(pair: Pair, local: Any, remote: Any, error: type[Exception]) -> None:
    here, there = pool(1), pool()
    for call in (pair.there.write_blocks, pair.there.read_blocks):
        with pytest.raises(error):
            call(here, local, remote, remote=there.advertise(pair.far))
    assert not there.tensor.any()


def test_no_blocks_are_moved_as_well(pair: Pair) -> None:
    pair.there.write_blocks(pool(), [], [], remote=pool().advertise(pair.far))


def test_pools_that_do_not_fit(pair: Pair) -> None:
    for nbytes, block in ((100, 64), (64, 0), (64, -1)):
        with pytest.raises(tcpx.InvalidArgument):
            KvPool(bytearray(nbytes), block)
    here = pool()
    with pytest.raises(tcpx.InvalidArgument, match="exchange"):
        pair.there.write_blocks(here, [0], [0])
    small = KvPool(bytearray(1024), 512)
    with pytest.raises(tcpx.Mismatch, match="of 1024 bytes here, of 512 there"):
        pair.there.write_blocks(here, [0], [0], remote=small.advertise(pair.far))
    frozen = KvPool(bytes(BLOCK_BYTES), BLOCK_BYTES)
    pair.there.write_blocks(frozen, [0], [1], remote=(there := pool(1)).advertise(pair.far))
    assert not there.tensor[1].any() and there.tensor[0].any()
    with pytest.raises(tcpx.InvalidArgument, match="read-only"):
        pair.there.read_blocks(frozen, [0], [1], remote=there.advertise(pair.far))
    with pytest.raises(tcpx.InvalidArgument, match="read-only"):
        frozen.advertise(pair.near)


def test_a_pool_whose_memory_was_resized_is_refused(pair: Pair) -> None:
    numbers = np.zeros(BLOCKS * BLOCK_BYTES, np.uint8)
    here, there = KvPool(numbers, BLOCK_BYTES), pool()
    remote = there.advertise(pair.far)
    for blocks in (BLOCKS - 1, BLOCKS + 1):
        numbers.resize(blocks * BLOCK_BYTES, refcheck=False)
        for call in (pair.there.write_blocks, pair.there.read_blocks):
            with pytest.raises(tcpx.InvalidArgument, match=f"use a pool: {blocks * BLOCK_BYTES} bytes now"):
                call(here, [0], [0], remote=remote)
    with pytest.raises(tcpx.InvalidArgument, match="use a pool"):
        here.advertise(pair.near)
