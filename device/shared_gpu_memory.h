// GPU memory that another process maps: MemoryOps::share and map_shared over CUDA.
//
// CUDA has a way for each kind of memory, by the call that made it:
//   cudaMalloc                 a CUDA IPC handle of the allocation; opening one twice counts, in the driver
//   the virtual-memory API     a file descriptor of the one chunk that the address lies in, or a fabric handle; it needs the
//                              right to leave the process, given when the chunk was made
//   a memory pool              nothing that would not share the whole pool: refused, as is memory that may move (managed)
#pragma once

// Types only: nothing here links to libcuda, which a machine without a driver does not have.
#include <cuda.h>
#include <cudaTypedefs.h>

#include "base/memory_ops.h"

namespace tcpx {

/// Any thread.
class SharedGpuMemory {
 public:
  SharedGpuMemory();
  Result<MemoryShare> share(const void* address, UniqueFd& fd) const;
  /// @param device one that exists
  Result<MemoryBuffer> map(int device, const MemoryShare& share, int fd) const;

  /// kInvalidArgument unless these numbers can be those of a share.
  static Status check(const MemoryShare& share, bool has_fd);

 private:
  /// Of the virtual-memory API. nullptr where the driver lacks it.
  struct ChunkFunctions {
    PFN_cuMemRetainAllocationHandle_v11000 retain;
    PFN_cuMemGetAllocationPropertiesFromHandle_v10020 properties;
    PFN_cuMemExportToShareableHandle_v10020 export_handle;
    PFN_cuMemImportFromShareableHandle_v10020 import_handle;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 free;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
    bool complete() const {
      return retain && properties && export_handle && import_handle && release && reserve && free && map && unmap && set_access;
    }
  };
  class Chunk;

  Status share_chunk(MemoryShare* share, UniqueFd* fd) const;
  Result<MemoryBuffer> map_ipc(int device, const MemoryShare& share) const;
  Result<MemoryBuffer> map_chunk(int device, const MemoryShare& share, int fd) const;
  template <class Value>
  bool read_attribute(Value* value, CUpointer_attribute attribute, CUdeviceptr address) const;

  const PFN_cuMemGetAddressRange_v3020 address_range_;  // nullptr when the driver lacks it
  const PFN_cuPointerGetAttribute_v4000 attribute_of_;  // the same
  const ChunkFunctions chunks_;
};

}  // namespace tcpx
