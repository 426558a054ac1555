"""Every kind of buffer, and everything that is none."""

from __future__ import annotations

import array
import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

import tcpx
from conftest import Pair
from tcpx.buffers import extent_of


def moved(pair: Pair, source: Any, target: Any) -> None:
    slot = pair.far.advertise(target)
    pair.there.write(source, slot)


@pytest.mark.parametrize("make", [bytearray, lambda n: array.array("B", bytes(n)), lambda n: mmap.mmap(-1, n),
                                  lambda n: (ctypes.c_ubyte * n)(), lambda n: memoryview(bytearray(n)),
                                  lambda n: np.zeros(n, np.uint8), lambda n: np.zeros(n // 4, np.float32)])  # fmt: skip
def test_memory_of_the_host(pair: Pair, make: Any) -> None:
    target = make(64)
    moved(pair, bytes(range(64)), target)
    assert bytes(memoryview(target).cast("B")) == bytes(range(64))
    receiving = pair.back.recv_async(target)
    pair.there.send(make(64))
    receiving.wait(10)
    assert bytes(memoryview(target).cast("B")) == bytes(64)


def test_tensors_of_torch(pair: Pair) -> None:
    torch = pytest.importorskip("torch")
    target = torch.zeros(6, 50)
    moved(pair, torch.arange(100, dtype=torch.float32), target[2:4])
    assert torch.equal(target[2:4].reshape(-1), torch.arange(100, dtype=torch.float32)) and target.count_nonzero() == 99
    half = torch.zeros(8, dtype=torch.bfloat16)
    moved(pair, torch.ones(8, dtype=torch.bfloat16), half)
    assert (half == 1).all()
    with pytest.raises(tcpx.InvalidArgument, match=r"not contiguous: shape \(50, 6\)"):
        pair.there.send(target.t())
    with pytest.raises(tcpx.InvalidArgument, match="meta"):
        pair.there.send(torch.zeros(4, device="meta"))


def test_a_tensor_whose_memory_was_freed() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(1000)
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    storage.resize_(0)
    try:
        address = tensor.data_ptr()
    except RuntimeError:
        address = 0
    if address != 0:
        pytest.skip("this torch keeps the memory of storages that were made empty")
    with pytest.raises((tcpx.InvalidArgument, RuntimeError)):
        extent_of(tensor)


class OnGpu:
    """What a GPU's array says of itself; nobody touches the memory here."""

    def __init__(self, **interface: Any) -> None:
        self.__cuda_array_interface__ = {"data": (4096, False), "shape": (4, 8), "typestr": "<f4", "version": 3, **interface}


def test_the_interface_of_cuda_arrays() -> None:
    whole = extent_of(OnGpu(stream=7))
    assert (whole.address, whole.nbytes, whole.stream, whole.shape, whole.itemsize) == (4096, 128, 7, (4, 8), 4)
    assert extent_of(OnGpu(strides=(32, 4))).nbytes == 128
    assert extent_of(OnGpu(strides=(999, 4), shape=(1, 8))).nbytes == 32  # of one row nobody looks at the stride
    assert extent_of(OnGpu(data=(4096, True))).readonly
    assert extent_of(OnGpu(data=(0, False), shape=(0, 8))).nbytes == 0
    with pytest.raises(tcpx.InvalidArgument, match="not contiguous"):
        extent_of(OnGpu(strides=(64, 4)))
    with pytest.raises(tcpx.InvalidArgument, match="freed"):
        extent_of(OnGpu(data=(0, False)))


class Lent:
    """Host memory that is offered by DLPack only."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __dlpack__(self, **options: Any) -> Any:
        return self.owner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.owner.__dlpack_device__()


def test_dlpack(pair: Pair) -> None:
    owner, target = np.arange(10, dtype=np.int64), np.zeros(10, np.int64)
    moved(pair, Lent(owner), target)
    assert (owner == target).all()


@pytest.mark.parametrize("thing", [None, 5, "text", object(), {"a": 1}, 1.5])
def test_what_is_no_buffer(pair: Pair, thing: Any) -> None:
    with pytest.raises(TypeError, match="is no buffer"):
        pair.there.send(thing)
    with pytest.raises(TypeError, match="is no buffer"):
        pair.near.advertise(thing)
    with pytest.raises(TypeError, match="is no buffer"):
        pair.there.send([b"x", thing])


def test_what_is_not_contiguous(pair: Pair) -> None:
    for one in (np.zeros((4, 4))[:, 1], np.zeros((4, 4)).T, np.zeros(8)[::2], np.zeros(8)[::-1]):
        with pytest.raises(tcpx.InvalidArgument, match="not contiguous"):
            pair.there.send(one)
    with pytest.raises(tcpx.InvalidArgument):
        pair.there.send(memoryview(bytearray(8))[::2])


def test_what_is_read_only(pair: Pair) -> None:
    frozen = np.zeros(8)
    frozen.flags.writeable = False
    for one in (b"12345678", frozen):
        for call in (pair.there.recv, pair.far.advertise, lambda x: pair.there.recv([x])):
            with pytest.raises(tcpx.InvalidArgument, match="read-only"):
                call(one)


def test_a_bytearray_keeps_its_size_in_flight(pair: Pair) -> None:
    target = bytearray(100)
    receiving = pair.back.recv_async(target)
    with pytest.raises(BufferError):
        target.clear()
    pair.there.send(b"z" * 100)
    receiving.wait(10)
    del receiving
    assert target == b"z" * 100
    target.clear()


def test_numpy_of_types_that_the_buffer_protocol_lacks(pair: Pair) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    target = np.zeros(8, ml_dtypes.bfloat16)
    moved(pair, np.ones(8, ml_dtypes.bfloat16), target)
    assert (target == 1).all()
