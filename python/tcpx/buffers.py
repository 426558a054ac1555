"""What counts as a buffer, and where its bytes lie.

Tensors of torch, arrays of numpy and cupy, everything with ``__cuda_array_interface__``, DLPack or the buffer protocol. A buffer
is contiguous; a view of one is one, too.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any, NamedTuple

from . import _core, streams
from .errors import invalid

__all__ = ["Buffer", "Extent", "Owner", "extent_of", "owner_of"]

Buffer = Any  #: see this module
#: Objects of ctypes that have memory.
_CTYPES = (ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._SimpleCData)


class Extent(NamedTuple):
    """Memory of a buffer.

    address, nbytes: its bytes.
    keep: holds the memory while it lives: the buffer, or what was made from it.
    stream: cudaStream_t after whose present work a GPU buffer is complete; None: host memory, or nothing to wait for.
    shape, itemsize: as the framework has them; (nbytes,) and 1 for plain bytes.
    readonly: must not be written to.
    taken: `keep` was made for this extent alone, so its death says nothing about the buffer's.
    """

    address: int
    nbytes: int
    keep: Any
    stream: int | None
    shape: tuple[int, ...]
    itemsize: int
    readonly: bool
    taken: bool = False


class Owner(NamedTuple):
    """What the memory of an extent lives as long as.

    dies: the object whose death is the end of the memory; None: that end cannot be seen.
    address, nbytes: all of its memory, registered once for all views.
    pin: keeps others from freeing the memory, and does not keep `dies` alive; None: nothing is needed.
    """

    dies: Any
    address: int
    nbytes: int
    pin: Any


def extent_of(buffer: Buffer) -> Extent:
    """The memory of a buffer. Raises TypeError for what is none, `tcpx.InvalidArgument` for one that cannot be used."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _of_torch(buffer)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(buffer, numpy.ndarray):
        return _of_numpy(buffer)
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_cuda_array(buffer, interface)
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


def owner_of(extent: Extent) -> Owner:
    """The owner of the memory, found through all the views between it and the buffer."""
    # A bytearray, an array, a map: only an export keeps their memory from being freed, and it keeps them alive.
    unseen = Owner(None, extent.address, extent.nbytes, extent.keep)
    if extent.taken:
        return unseen
    if isinstance(extent.keep, memoryview):
        return _owner_below(extent.keep.obj, extent) or unseen
    return _owner_below(extent.keep, extent) or _owner_elsewhere(extent) or unseen


def _owner_below(buffer: Any, extent: Extent) -> Owner | None:
    """The owner of what is known to have memory of its own; None: it is none of these."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _owner_of_tensor(buffer, extent)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(buffer, numpy.ndarray):
        return _owner_of_array(numpy, buffer, extent)
    if isinstance(buffer, _CTYPES):
        while isinstance(buffer._b_base_, _CTYPES):
            buffer = buffer._b_base_
        return Owner(buffer, ctypes.addressof(buffer), ctypes.sizeof(buffer), None)
    return None


def _owner_of_tensor(tensor: Any, extent: Extent) -> Owner:
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else None  # since torch 2.0
    # Before 2.1 each call makes another object, which dies at once.
    if storage is not None and storage is tensor.untyped_storage() and storage.nbytes() >= extent.nbytes:
        return Owner(storage, storage.data_ptr(), storage.nbytes(), None)
    return Owner(tensor if tensor._base is None else tensor._base, extent.address, extent.nbytes, None)


def _owner_of_array(numpy: Any, array: Any, extent: Extent) -> Owner:
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    below = array.base.obj if isinstance(array.base, memoryview) else array.base
    owner = _owner_below(below, extent)
    if owner is not None:
        return owner
    try:
        pin = None if below is None else memoryview(below)
    except (TypeError, ValueError, BufferError):
        pin = None  # a capsule or the like, which nobody else frees
    if not array.flags.c_contiguous:
        return Owner(array, extent.address, extent.nbytes, pin)
    return Owner(array, array.__array_interface__["data"][0], array.nbytes, pin)


def _owner_elsewhere(extent: Extent) -> Owner | None:
    """The owner of memory that its object describes (``__cuda_array_interface__``): the object, or the array below a view."""
    buffer = extent.keep
    if type(buffer).__module__.partition(".")[0] == "cupy" and buffer.base is not None:
        buffer = buffer.base
    try:
        weakref.ref(buffer)
    except TypeError:
        return None
    return Owner(buffer, extent.address, extent.nbytes, None)


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

        return extent_of(numpy.from_dlpack(producer))._replace(taken=True)
    if kind in (2, 13):  # CUDA, plain or managed
        import torch

        return _of_torch(torch.from_dlpack(producer))._replace(taken=True)
    raise invalid("use a DLPack object", f"memory of device kind {kind}, which is neither a CUDA GPU's nor the host's")
