"""GPU memory: every framework's, in the order of its streams. Skipped without a GPU and torch that uses it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from conftest import Pair
from tcpx import _core
from tcpx.buffers import extent_of
from tcpx.kv import KvPool

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here, or a torch that does not use it")

SLEEP_CYCLES = 200_000_000  # about 0.1 s
NBYTES = 8 << 20


def random(nbytes: int = NBYTES) -> Any:
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device="cuda")


@pytest.mark.parametrize("nbytes", [1, 8, 4096, 16385, NBYTES])
@pytest.mark.parametrize("places", ["cuda cuda", "cuda cpu", "cpu cuda"])
def test_every_call(pair: Pair, nbytes: int, places: str) -> None:
    here, there = places.split()
    source, target = random(nbytes).to(here), torch.zeros(nbytes, dtype=torch.uint8, device=there)
    slot = pair.far.advertise(target)
    pair.there.write(source, slot)
    assert torch.equal(source.cpu(), target.cpu())
    again = torch.zeros_like(source)
    pair.there.read(again, slot)
    assert torch.equal(source.cpu(), again.cpu())
    target.zero_()
    receiving = pair.back.recv_async(target)
    pair.there.send(source)
    receiving.wait(10)
    assert torch.equal(source.cpu(), target.cpu())


def fill_late(source: Any) -> None:
    """The current stream gets to it after a while."""
    torch.cuda._sleep(SLEEP_CYCLES)
    source.fill_(7)


def test_what_the_stream_holds_comes_first(pair: Pair) -> None:
    source, target = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda"), torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
    slot = pair.far.advertise(target)
    pair.there.write(source, slot)
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        source.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            fill_late(source)
            pair.there.write(source, slot)
        assert bool((target == 7).all()), stream
        target.zero_()
        torch.cuda.synchronize()


def test_a_list_of_slices_waits_for_their_stream(pair: Pair) -> None:
    source, target = torch.zeros(512, 1000, device="cuda"), torch.zeros(512, 1000, device="cuda")
    whole = pair.far.advertise(target)
    slots = [whole[i] for i in range(512)]
    plan = pair.there.prepare(list(source), slots)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(SLEEP_CYCLES)
        source += 1
        pair.there.write(list(source), slots)
        assert (target == 1).all()
        torch.cuda._sleep(SLEEP_CYCLES)
        source += 1
        plan.write()
        assert (target == 2).all()
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        buffers = [source[0], torch.zeros(1000), *source[1:]]
        assert _core.ranges_of(buffers, None, extent_of).streams.keys() == {other.cuda_stream}


def test_without_the_stream_the_old_bytes_are_moved(pair: Pair) -> None:
    """What the test before this one sees is the work of the stream: here the order is given up, and the bytes are old."""
    source, target = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda"), torch.ones(NBYTES, dtype=torch.uint8, device="cuda")
    slot = pair.far.advertise(target)
    pair.there.write(source, slot)
    target.fill_(1)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        fill_late(source)
        pair.there.write(source, slot, stream=None)
    assert bool((target == 0).all())
    torch.cuda.synchronize()


def test_a_stream_named_by_the_caller(pair: Pair) -> None:
    source, target = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda"), torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
    slot = pair.far.advertise(target)
    stream = torch.cuda.Stream()
    for name in (stream, stream.cuda_stream):
        source.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            fill_late(source)
        pair.there.write(source, slot, stream=name)
        assert bool((target == 7).all())
        target.zero_()


def test_a_stream_waits_for_an_operation(pair: Pair) -> None:
    target, copy = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda"), torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
    source, stream = random(), torch.cuda.Stream()
    receiving = pair.back.recv_async(target, event=True)
    receiving.wait_on(stream)
    with torch.cuda.stream(stream):
        copy.copy_(target)
    assert not receiving.done() and not stream.query()
    pair.there.send(source)
    stream.synchronize()
    assert torch.equal(copy, source)
    receiving.wait(10)
    receiving.wait_on(stream)  # over already


def test_awaited(pair: Pair) -> None:
    source, target = random(), torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
    slot = pair.far.advertise(target)
    asyncio.run(wait_for(pair.there.write_async(source, slot)))
    assert torch.equal(source, target)


async def wait_for(operation: Any) -> None:
    await asyncio.wait_for(operation, 20)


def test_blocks(pair: Pair) -> None:
    here = KvPool(random(1 << 20), 1024)
    there = KvPool(torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"), 1024)
    order = np.random.default_rng(1).permutation(1024)
    pair.there.write_blocks(here, order, order[::-1], remote=there.advertise(pair.far))
    moved, source = there.tensor.view(1024, 1024), here.tensor.view(1024, 1024)
    assert torch.equal(moved[torch.tensor(order[::-1].copy())], source[torch.tensor(order)])


def test_arrays_of_cupy(pair: Pair) -> None:
    cupy = pytest.importorskip("cupy")
    source, target = cupy.arange(1 << 20, dtype=cupy.float32), cupy.zeros(1 << 20, dtype=cupy.float32)
    slot = pair.far.advertise(target)
    with cupy.cuda.Stream():
        source += 1
        pair.there.write(source, slot)
    assert bool((source == target).all())


def test_arrays_of_jax(pair: Pair) -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("a jax that does not use the GPU")
    source, target = jax.numpy.arange(1 << 20, dtype=jax.numpy.float32) + 1, torch.zeros(1 << 20, device="cuda")
    pair.there.write(source, pair.far.advertise(target))
    assert (np.asarray(source) == target.cpu().numpy()).all()


def test_memory_of_a_pool_that_grows(pair: Pair) -> None:
    """torch's allocator hands the same memory to other tensors, and registrations follow."""
    for round in range(20):
        source, target = random(1 << 20), torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
        pair.there.write(source, pair.far.advertise(target))
        assert torch.equal(source, target), round
        if round == 10:
            del source, target
            torch.cuda.empty_cache()
