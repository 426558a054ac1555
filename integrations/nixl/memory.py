"""Memory of an agent, of the host or of a GPU, read and written like an array of bytes. GPU memory comes from the driver alone."""

import ctypes
import mmap

import numpy


HUGE_PAGE = 2 << 20


class HostMemory:
    """Zeros at first, from the begin of a huge page on. A copy between processes pins each page of one of them, so it is faster with few of
    them; of ordinary memory it is chance, by its address, how much of it lies in huge ones."""

    kind, gpu, place = "DRAM", 0, "host memory"

    def __init__(self, size, huge):
        room = mmap.mmap(-1, size + 2 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            room.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
        except OSError:
            pass  # a kernel that has small ones alone
        data = numpy.frombuffer(room, dtype=numpy.uint8)
        self.data = data[-data.ctypes.data % HUGE_PAGE :][:size]
        self.address, self.size = self.data.ctypes.data, size

    def __setitem__(self, where, values):
        self.data[where] = values

    def __getitem__(self, where):
        return self.data[where]


class GpuMemory:
    """Zeros at first. The GPU becomes the current one of each thread that makes it, reads it or writes it. Kept until the process ends."""

    kind = "VRAM"

    def __init__(self, gpu, size):
        self.gpu, self.size = gpu, size
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, self.context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(gpu))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.address = address.value
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, ctypes.c_int(len(name)), device)
        self.place = f"GPU {gpu} ({name.value.decode()})"
        self[:] = 0

    def call(self, name, *arguments):
        error = getattr(self.driver, name)(*arguments)
        if error != 0:
            raise RuntimeError(f"{name} failed with CUDA's error {error} on GPU {self.gpu}")

    def __setitem__(self, where, values):
        begin, end, _ = where.indices(self.size)
        data = numpy.empty(end - begin, dtype=numpy.uint8)
        data[:] = values
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address + begin), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.size))
        self.call("cuCtxSynchronize")  # a copy may be in a staging buffer still when the call returns

    def __getitem__(self, where):
        """A copy."""
        begin, end, _ = where.indices(self.size)
        data = numpy.empty(end - begin, dtype=numpy.uint8)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data), ctypes.c_uint64(self.address + begin), ctypes.c_size_t(data.size))
        return data


def allocate(kind, gpu, size, huge=False):
    """@param kind "DRAM" or "VRAM"; for "DRAM" the GPU does not count, and `huge` says in which pages it lies"""
    return GpuMemory(gpu, size) if kind == "VRAM" else HostMemory(size, huge)
