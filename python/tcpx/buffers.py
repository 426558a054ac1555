"""What counts as a buffer, and where its bytes lie.

Tensors of torch, arrays of numpy and cupy, everything with ``__cuda_array_interface__``, DLPack or the buffer protocol. A buffer
is contiguous; a view of one is one, too.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from . import _core, streams
from .errors import invalid

__all__ = ["Buffer", "Extent", "extent_of", "owner_of"]

Buffer = Any  #: see this module


class Extent(NamedTuple):
    """Memory of a buffer.

    address, nbytes: its bytes.
    keep: holds the memory while it lives: the buffer, or what was made from it.
    stream: cudaStream_t after whose present work a GPU buffer is complete; None: host memory, or nothing to wait for.
    shape, itemsize: as the framework has them; (nbytes,) and 1 for plain bytes.
    readonly: must not be written to.
    """

    address: int
    nbytes: int
    keep: Any
    stream: int | None
    shape: tuple[int, ...]
    itemsize: int
    readonly: bool


def extent_of(buffer: Buffer) -> Extent:
    """The memory of a buffer. Raises TypeError for what is none, `tcpx.InvalidArgument` for one that cannot be used."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _of_torch(buffer)
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_cuda_array(buffer, interface)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(buffer, numpy.ndarray):
        return _of_numpy(buffer)
    try:
        address, nbytes, readonly = _core.extent_of(buffer)
    except TypeError:
        if hasattr(buffer, "__dlpack__"):
            return _of_dlpack(buffer)
        raise TypeError(
            f"{type(buffer).__name__} is no buffer: neither a tensor of torch, nor an object with "
            "__cuda_array_interface__, __dlpack__ or the buffer protocol"
        ) from None
    except (BufferError, ValueError) as error:
        raise invalid("use a buffer", f"{type(buffer).__name__}: {error}") from None
    # A bytearray could be made smaller while its bytes move: an export of its own prevents that.
    view = memoryview(buffer)
    if "O" in "".join(view.format.split(":")[::2]):  # between colons are names of fields
        raise invalid("use a buffer", "its elements are Python objects")
    return Extent(address, nbytes, view, None, view.shape or (nbytes,), view.itemsize, readonly)


def owner_of(extent: Extent) -> tuple[Any, int, int]:
    """What owns the memory, with address and length of all that it owns: registered once for all views.

    The owner is None for memory whose end cannot be seen: its registration lasts as long as somebody keeps the buffer for it.
    """
    buffer = extent.keep
    if isinstance(buffer, memoryview):
        return None, extent.address, extent.nbytes
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        storage = buffer.untyped_storage() if hasattr(buffer, "untyped_storage") else None  # since torch 2.0
        if storage is not None and storage.nbytes() >= extent.nbytes:
            return storage, storage.data_ptr(), storage.nbytes()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(buffer, numpy.ndarray):
        while isinstance(buffer.base, numpy.ndarray):
            buffer = buffer.base
        if buffer.base is None:
            return buffer, buffer.__array_interface__["data"][0], buffer.nbytes
    return extent.keep, extent.address, extent.nbytes


def _of_numpy(array: Any) -> Extent:
    if array.dtype.hasobject:
        raise invalid("use an array", "its elements are Python objects")
    if not array.flags.c_contiguous:
        raise invalid("use an array", f"not contiguous: shape {array.shape}, strides {array.strides}")
    try:
        address, nbytes, readonly = _core.extent_of(array)
    except ValueError:  # of a type that the buffer protocol does not know, as bfloat16
        address, readonly = array.__array_interface__["data"]
        nbytes = array.nbytes
    return Extent(address, nbytes, array, None, array.shape, array.itemsize, readonly)


def _no_plain_memory(torch: Any, tensor: Any) -> str | None:
    """Why the bytes of a tensor are not its values, and what to do about it; None: they are."""
    name = type(tensor).__name__
    if name == "DTensor" and hasattr(tensor, "to_local"):
        return "a DTensor is spread over processes: use to_local()"
    # Of these torch gives an address, and what lies there is something else.
    if tensor.is_conj():
        return "conjugated when it is read, not in memory: use resolve_conj()"
    if tensor.is_neg():
        return "negated when it is read, not in memory: use resolve_neg()"
    if tensor.is_quantized:
        return "quantized, with scales that lie elsewhere: use int_repr(), and send those beside it"
    if tensor.is_nested:
        return "nested, of tensors with shapes of their own: send those that unbind() gives"
    if tensor.layout is not torch.strided:
        return f"of layout {str(tensor.layout).removeprefix('torch.')}, whose parts lie apart: use to_dense()"
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # of a transformation (torch.func), or without storage
        address = 0
    if address == 0 and tensor.numel() != 0:
        what = "Tensor" if type(tensor) is torch.Tensor else name
        return f"a {what} without memory of its own ({tensor.device}): freed, never there, or wrapped around another tensor"
    return None


def _of_torch(tensor: Any) -> Extent:
    why = _no_plain_memory(sys.modules["torch"], tensor)
    if why is not None:
        raise invalid("use a tensor", why)
    if not tensor.is_contiguous():
        raise invalid("use a tensor", f"not contiguous: shape {tuple(tensor.shape)}, strides {tensor.stride()}")
    itemsize = tensor.element_size()
    nbytes = tensor.numel() * itemsize
    address = tensor.data_ptr()
    device = tensor.device
    stream = None
    if device.type == "cuda":
        stream = streams.current_of_torch(device.index)
    elif device.type != "cpu":
        raise invalid("use a tensor", f"memory of device {device}, which is neither a CUDA GPU's nor the host's")
    return Extent(address, nbytes, tensor, stream, tuple(tensor.shape), itemsize, False)


def wait_until_ready(array: Any) -> None:
    """jax has no stream that could be waited for: an array says itself when it has been computed."""
    wait = getattr(array, "block_until_ready", None)
    if wait is not None:
        wait()


def _of_cuda_array(array: Any, interface: dict[str, Any]) -> Extent:
    """See numba's documents, "CUDA Array Interface", version 3."""
    wait_until_ready(array)
    address, readonly = interface["data"]
    shape = tuple(interface["shape"])
    itemsize = int(interface["typestr"][2:])
    nbytes = itemsize
    for length in shape:
        nbytes *= length
    strides = interface.get("strides")
    if strides is not None and nbytes != 0:
        expected = itemsize
        for length, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
            if length != 1 and stride != expected:
                raise invalid("use an array", f"not contiguous: shape {shape}, strides {tuple(strides)}")
            expected *= length
    if not address and nbytes != 0:
        raise invalid("use an array", f"{nbytes} bytes of memory that was freed")
    stream = interface.get("stream")
    if stream is None and type(array).__module__.partition(".")[0] == "cupy":
        stream = streams.current_of_cupy()
    return Extent(address or 0, nbytes, array, stream, shape, itemsize, bool(readonly))


def _of_dlpack(producer: Any) -> Extent:
    """Takes the memory over as numpy (host) or torch (GPU) does: they check the capsule."""
    wait_until_ready(producer)
    kind, _ = producer.__dlpack_device__()
    kind = int(kind)
    if kind in (1, 3):  # the host's, plain or pinned
        import numpy

        return extent_of(numpy.from_dlpack(producer))
    if kind in (2, 13):  # CUDA, plain or managed
        import torch

        return _of_torch(torch.from_dlpack(producer))
    raise invalid("use a DLPack object", f"memory of device kind {kind}, which is neither a CUDA GPU's nor the host's")
