"""Every kind of buffer, and everything that is none."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import sys
import warnings
import weakref
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcpx
from conftest import Lent, Pair
from tcpx import _core
from tcpx.buffers import Extent, extent_of


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
    with pytest.raises(tcpx.InvalidArgument, match=r"not contiguous: shape \(50, 6\)"):
        pair.there.send([target, target.t()])
    with pytest.raises(tcpx.InvalidArgument, match="meta"):
        pair.there.send(torch.zeros(4, device="meta"))


def no_plain_tensors(torch: Any) -> dict[str, Any]:
    """By the words that tell what to do about each."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # type: ignore[import-not-found,unused-ignore]

    complex_ones = torch.full((4,), 1 + 2j)
    with FakeTensorMode():
        fake = torch.zeros(3)
    return {
        r"resolve_conj\(\)": complex_ones.conj(),
        r"resolve_neg\(\)": complex_ones.conj().imag,
        r"negated .* resolve_neg\(\)": torch._neg_view(torch.ones(4)),
        r"int_repr\(\)": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint4x2),
        r"unbind\(\)": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        r"sparse_coo.* to_dense\(\)": torch.eye(3).to_sparse(),
        r"sparse_csr.* to_dense\(\)": torch.eye(3).to_sparse_csr(),
        r"a Tensor without memory .*meta": torch.zeros(4, device="meta"),
        r"a FakeTensor without memory": fake,
    }


@pytest.mark.filterwarnings("ignore")
def test_tensors_whose_bytes_are_not_their_values(pair: Pair) -> None:
    torch = pytest.importorskip("torch")
    for words, tensor in no_plain_tensors(torch).items():
        plain = torch.zeros(4, dtype=tensor.dtype if words != r"int_repr\(\)" else torch.uint8)  # mostly of the same type
        in_lists = (lambda x: pair.there.send([plain, x]), lambda x: pair.there.prepare([x], [None]))
        for call in (pair.there.send, pair.there.recv, pair.near.advertise, *in_lists):
            with pytest.raises(tcpx.InvalidArgument, match=words):
                call(tensor)
    plain = torch.full((4,), 1 + 2j).conj().resolve_conj()
    target = torch.zeros_like(plain)
    moved(pair, plain, target)
    assert (target == 1 - 2j).all()


def test_a_tensor_inside_a_transformation() -> None:
    pytest.importorskip("torch")
    func = pytest.importorskip("torch.func" if find_spec("torch.func") else "functorch")

    def body(row: Any) -> Any:
        with pytest.raises(tcpx.InvalidArgument, match="wrapped around another tensor"):
            extent_of(row)
        return row

    import torch

    func.vmap(body)(torch.ones(2, 3))


def test_a_tensor_that_is_spread_over_processes() -> None:
    torch = pytest.importorskip("torch")

    class DTensor(torch.Tensor):  # type: ignore[misc,name-defined,unused-ignore]
        """As torch's is, which needs a process group."""

        @staticmethod
        def __new__(cls, local: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, local.shape, dtype=local.dtype)

        def __init__(self, local: Any) -> None:
            self.local = local

        def to_local(self) -> Any:
            return self.local

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(f"{function} of all processes")

    with pytest.raises(tcpx.InvalidArgument, match=r"DTensor .* to_local\(\)"):
        extent_of(DTensor(torch.ones(4)))


def test_a_file_that_is_mapped_for_reading(pair: Pair, tmp_path: Any) -> None:
    """Of a tensor nobody can see that its memory is read-only."""
    torch = pytest.importorskip("torch")
    (tmp_path / "weights").write_bytes(bytes(range(256)) * 16)
    with open(tmp_path / "weights", "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights = torch.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=torch.uint8)
    target = bytearray(4096)
    moved(pair, weights, target)
    assert target == bytes(range(256)) * 16
    slot, copy = pair.far.advertise(weights, access="read"), bytearray(4096)
    pair.there.read(copy, slot)
    assert copy == target
    for call in (pair.there.recv, pair.near.advertise, lambda into: pair.there.read(into, slot)):
        with pytest.raises(tcpx.InvalidArgument, match="may only be read"):
            call(weights)


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


def test_the_stream_of_each_gpu_is_asked_for_once_in_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        """As torch's, on a GPU; on the host for None."""

        is_quantized = is_nested = False
        layout = "strided"
        dtype = SimpleNamespace(is_complex=False)

        def __init__(self, place: int, gpu: int | None, is_cuda: bool = True) -> None:
            self.place, self.gpu = place, gpu
            self.is_cuda, self.is_cpu = is_cuda, gpu is None

        element_size, numel = (lambda self: 4), (lambda self: 8)
        is_neg, is_contiguous = (lambda self: False), (lambda self: True)
        data_ptr, get_device = (lambda self: self.place), (lambda self: -1 if self.gpu is None else self.gpu)

    def extent(tensor: Tensor) -> Extent:
        asked.append(tensor.place)
        stream = 70 + (tensor.gpu or 0) if tensor.is_cuda else None
        return Extent(tensor.place, 32, tensor, stream, (8,), 4, False)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, strided="strided"))
    asked: list[int] = []
    tensors = [Tensor(100 + i, gpu) for i, gpu in enumerate([None, 0, 0, 1, None, 1, 0])] + [Tensor(107, 0, False)]
    ranges = _core.ranges_of(tensors, None, extent)
    assert asked == [101, 103, 107] and len(ranges) == 8 and not ranges.readonly
    assert {stream: tensor.place for stream, tensor in ranges.streams.items()} == {70: 101, 71: 103}
    assert [part.keep if isinstance(part, Extent) else part for part in ranges.parts] == tensors


def test_dlpack(pair: Pair) -> None:
    owner, target = np.arange(10, dtype=np.int64), np.zeros(10, np.int64)
    moved(pair, Lent(owner), target)
    assert (owner == target).all()


def every_kind() -> list[Any]:
    """Buffers of 24 bytes, some of them of the kind before."""
    some: list[Any] = [np.zeros(24, np.uint8), np.zeros((2, 3), np.int32), np.zeros((6, 2, 3), np.int8)[2:], bytearray(24)]
    some += [np.zeros(3, "i4, i2, i2"), np.zeros(24, np.uint8).view(np.recarray), array.array("B", bytes(24))]
    some += [np.zeros(3, "M8[s]").view(np.int64), (ctypes.c_ubyte * 24)(), memoryview(bytearray(48))[24:], np.zeros(3)]
    if find_spec("torch"):
        import torch

        some += [torch.zeros(6), torch.zeros(9, 3)[4:6], torch.zeros(3, dtype=torch.complex64), torch.zeros(12, dtype=torch.half)]
        some += [torch.nn.Parameter(torch.zeros(24, dtype=torch.uint8), requires_grad=False), torch.zeros(0), torch.zeros(6)]
    return [one for one in some if not hasattr(one, "numel") or one.numel()]


def bytes_of(buffer: Any) -> bytes:
    return bytes(np.asarray(buffer).tobytes() if hasattr(buffer, "numpy") else memoryview(buffer).tobytes())


def test_lists_of_every_kind(pair: Pair) -> None:
    there, order = every_kind(), np.random.default_rng(5)
    here = [np.frombuffer(order.bytes(24), np.uint8) for _ in there]
    pair.there.write(here, [pair.far.advertise(buffer) for buffer in there])
    assert [bytes_of(buffer) for buffer in there] == [bytes_of(buffer) for buffer in here]
    here[3] = Lent(here[3].copy())
    slots = [pair.far.advertise(buffer, access="read") for buffer in here]
    here[3] = here[3].owner
    shuffled = [int(i) for i in order.permutation(len(there))]
    for read in (pair.there.read, lambda buffers, slots: pair.there.prepare(buffers, slots).read()):
        again = [every_kind()[i] for i in shuffled]
        read(again, [slots[i] for i in shuffled])
        assert [bytes_of(buffer) for buffer in again] == [bytes_of(here[i]) for i in shuffled]


def test_empty_buffers_of_a_list_move_nothing(pair: Pair) -> None:
    target = np.zeros(8, np.uint8)
    slot = pair.far.advertise(target)
    buffers = [np.zeros((0, 3)), b"1234", np.zeros(5)[5:], b"", np.full(4, 57, np.uint8)]
    pair.there.write(buffers, [slot.bytes(8), slot[:4], slot, slot[3:3], slot[4:]])
    assert bytes(target) == b"12349999"


def test_a_list_that_is_refused(pair: Pair) -> None:
    slot, plain = pair.far.advertise(np.zeros(16, np.uint8)), np.zeros(2)
    objects, structured = np.zeros(2, object), np.zeros(1, [("name", object), ("number", np.int64)])
    for wrong in (objects, structured, np.zeros((2, 2)).T, np.zeros(8)[::-2]):
        with pytest.raises(tcpx.InvalidArgument, match="Python objects|not contiguous"):
            pair.there.write([plain, wrong], [slot, slot])
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    with pytest.raises(tcpx.InvalidArgument, match="one of the buffers is read-only"):
        pair.there.read([plain, frozen], [slot, slot])
    pair.there.write([plain, frozen], [slot, slot])
    for slots in (None, 5, [slot, None], [slot, b"no slot"], (one for one in (slot, slot))):
        with pytest.raises((TypeError, tcpx.InvalidArgument)):
            pair.there.write([plain, plain], slots)  # type: ignore[arg-type]
    for slots in (slot, [slot], [slot] * 3, ()):
        with pytest.raises(tcpx.InvalidArgument, match="2 buffers need as many slots"):
            pair.there.write([plain, plain], slots)
    with pytest.raises(tcpx.Mismatch, match="16 bytes for a slot of 15"):
        pair.there.write((plain, plain), (slot, slot[1:]))
    with pytest.raises(AttributeError, match="not made"):
        pair.there.write([plain], [tcpx.Slot.__new__(tcpx.Slot)])


def test_a_list_that_changes_while_it_is_looked_at(pair: Pair) -> None:
    class Clears(Lent):
        def __dlpack__(self, **options: Any) -> Any:
            buffers.clear()
            slots.clear()
            return super().__dlpack__(**options)

    target = np.zeros((3, 8), np.uint8)
    slots = list(pair.far.advertise(target)[i] for i in range(3))
    buffers: list[Any] = [np.full(8, 1, np.uint8), Clears(np.full(8, 2, np.uint8)), np.full(8, 3, np.uint8)]
    with pytest.raises(tcpx.InvalidArgument, match="3 buffers need as many slots"):
        pair.there.write(buffers, slots)
    assert not target.any()


def test_buffers_of_a_list_live_until_the_end(pair: Pair) -> None:
    buffers: list[Any] = [np.zeros(8, np.uint8), bytearray(8)]
    kept, died = buffers[1], weakref.ref(buffers[0])
    receiving = pair.back.recv_async(buffers)
    buffers.clear()
    gc.collect()
    assert died() is not None
    with pytest.raises(BufferError):
        kept.clear()
    pair.there.send(bytes(16))
    receiving.wait(10)
    del receiving
    gc.collect()
    assert died() is None
    kept.clear()


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
