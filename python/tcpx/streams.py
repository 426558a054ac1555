"""CUDA streams of the frameworks: which one to wait for before memory is touched."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

from .errors import Cuda

__all__ = ["CURRENT", "Stream", "handle_of"]


_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class _Current:
    def __repr__(self) -> str:
        return "tcpx.CURRENT"


#: Default of `stream`: the current stream of the framework that the buffer comes from.
CURRENT: Final = _Current()

#: `CURRENT`, None (wait for nothing), a cudaStream_t as a number, or a stream of torch, cupy or anything with `__cuda_stream__`.
Stream = Any


def handle_of(stream: Stream) -> int | None:
    """cudaStream_t of a stream that a caller named; None for none."""
    if stream is None or isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):  # torch, cupy
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    describe = getattr(stream, "__cuda_stream__", None)  # (version, handle) of CUDA's own Python packages
    if describe is not None:
        return int(describe()[1])
    raise TypeError(f"no CUDA stream: {stream!r}")


def current_of_torch(device: int) -> int:
    """Stream on which torch would start its next kernel, on this thread."""
    torch = sys.modules["torch"]
    return int(torch._C._cuda_getCurrentRawStream(device))


def current_of_cupy() -> int | None:
    """The same for cupy; None when cupy is not in use."""
    cupy = sys.modules.get("cupy")
    return None if cupy is None else int(cupy.cuda.get_current_stream().ptr)


def make_wait(stream: int, event: int) -> None:
    """Makes a stream wait for an event (cudaStream_t, cudaEvent_t: the driver's types, too)."""
    driver = ctypes.CDLL("libcuda.so.1")
    code = driver.cuStreamWaitEvent(ctypes.c_void_p(stream), ctypes.c_void_p(event), 0)
    if code != 0:
        raise Cuda(f"{Cuda.code}: cuStreamWaitEvent: driver code {code}", "", "cuStreamWaitEvent", "", code)


def finish(stream: int) -> None:
    """Waits until a stream (cudaStream_t) has done what it holds. Captures of other threads go on. Raises `tcpx.Cuda`."""
    driver = ctypes.CDLL("libcuda.so.1")
    mode = ctypes.c_int(_RELAXED)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    code = driver.cuStreamSynchronize(ctypes.c_void_p(stream))
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    if code != 0:
        raise Cuda(f"{Cuda.code}: cuStreamSynchronize: driver code {code}", "", "cuStreamSynchronize", "", code)
