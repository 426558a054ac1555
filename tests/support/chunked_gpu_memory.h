// GPU memory of the virtual-memory API: chunks mapped side by side in one range of addresses, as PyTorch's expandable segments are.
#pragma once

#include <vector>

#include "base/text.h"
#include "device/driver_entry.h"
#include "device/shared_gpu_memory.h"  // names the driver's types
#include "tcpx/status.h"

namespace tcpx::testing {

class ChunkedGpuMemory {
 public:
  /// @param bytes of each chunk; rounded up to what the driver maps. @param handle_type the right to leave the process
  ChunkedGpuMemory(int device, uint64_t bytes, uint32_t chunks, CUmemAllocationHandleType handle_type) : handles_(chunks, 0) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    properties_.requestedHandleTypes = handle_type;
    size_t unit = 1;
    must_be_well(get_unit_(&unit, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    bytes_ = (bytes + unit - 1) / unit * unit;
    must_be_well(reserve_(&begin_, bytes_ * chunks, 0, 0, 0));
    for (uint32_t i = 0; i < chunks; ++i) fill(i);
  }
  ChunkedGpuMemory(const ChunkedGpuMemory&) = delete;
  ChunkedGpuMemory& operator=(const ChunkedGpuMemory&) = delete;
  ~ChunkedGpuMemory() {
    for (uint32_t i = 0; i < handles_.size(); ++i) empty(i);
    if (begin_ != 0) free_(begin_, bytes_ * handles_.size());
  }

  std::byte* address(uint32_t chunk = 0) const { return reinterpret_cast<std::byte*>(begin_ + bytes_ * chunk); }
  uint64_t chunk_bytes() const { return bytes_; }
  /// Puts other physical memory there.
  void replace(uint32_t chunk) {
    empty(chunk);
    fill(chunk);
  }
  /// Of the calls so far.
  const Status& status() const { return status_; }

 private:
  void fill(uint32_t chunk) {
    CUmemAccessDesc access{};
    access.location = properties_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUdeviceptr at = begin_ + bytes_ * chunk;
    must_be_well(create_(&handles_[chunk], bytes_, &properties_, 0));
    if (!status_.is_ok()) return;
    must_be_well(map_(at, bytes_, 0, handles_[chunk], 0));
    must_be_well(set_access_(at, bytes_, &access, 1));
  }
  void empty(uint32_t chunk) {
    if (handles_[chunk] == 0) return;
    must_be_well(unmap_(begin_ + bytes_ * chunk, bytes_));
    must_be_well(release_(handles_[chunk]));
    handles_[chunk] = 0;
  }
  void must_be_well(CUresult result) {
    if (result == CUDA_SUCCESS || !status_.is_ok()) return;
    status_ = Status(Code::kCuda, "make GPU memory of chunks", concat("CUresult ", static_cast<int>(result)));
  }

  template <class Function>
  static Function find(const char* name) {
    return find_driver_function<Function>(name, 10020);
  }
  const PFN_cuMemGetAllocationGranularity_v10020 get_unit_ =
      find<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity");
  const PFN_cuMemAddressReserve_v10020 reserve_ = find<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve");
  const PFN_cuMemAddressFree_v10020 free_ = find<PFN_cuMemAddressFree_v10020>("cuMemAddressFree");
  const PFN_cuMemCreate_v10020 create_ = find<PFN_cuMemCreate_v10020>("cuMemCreate");
  const PFN_cuMemRelease_v10020 release_ = find<PFN_cuMemRelease_v10020>("cuMemRelease");
  const PFN_cuMemMap_v10020 map_ = find<PFN_cuMemMap_v10020>("cuMemMap");
  const PFN_cuMemUnmap_v10020 unmap_ = find<PFN_cuMemUnmap_v10020>("cuMemUnmap");
  const PFN_cuMemSetAccess_v10020 set_access_ = find<PFN_cuMemSetAccess_v10020>("cuMemSetAccess");

  CUmemAllocationProp properties_{};
  uint64_t bytes_ = 0;
  CUdeviceptr begin_ = 0;
  std::vector<CUmemGenericAllocationHandle> handles_;  // 0: none there
  Status status_;
};

}  // namespace tcpx::testing
