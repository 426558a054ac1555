// StagingPool: the buffers that lanes gather into and scatter from. A buffer that a lane gives back is kept for the next one
// until the endpoint ends: freeing GPU memory waits for all of the GPU's work, and some of that may wait for us
// (base/gpu_order.h).
#pragma once

#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "tcpx/types.h"

namespace tcpx {

/// One thread at a time: the one that makes progress.
class StagingPool {
 public:
  /// @param memory, host_memory of GPU and host; must outlive the pool. @param bytes of each buffer
  StagingPool(MemoryOps& memory, MemoryOps& host_memory, int device, size_t bytes)
      : memory_(memory), host_memory_(host_memory), device_(device), bytes_(bytes) {}

  Result<MemoryBuffer> take(MemoryType type) {
    auto& free = free_of(type);
    if (free.empty()) {
      return type == MemoryType::kCuda ? memory_.allocate_device(device_, bytes_) : host_memory_.allocate_device(0, bytes_);
    }
    MemoryBuffer buffer = std::move(free.back());
    free.pop_back();
    return buffer;
  }
  void give_back(MemoryType type, MemoryBuffer buffer) { free_of(type).push_back(std::move(buffer)); }

 private:
  std::vector<MemoryBuffer>& free_of(MemoryType type) { return type == MemoryType::kCuda ? free_device_ : free_host_; }

  MemoryOps& memory_;
  MemoryOps& host_memory_;
  const int device_;
  const size_t bytes_;
  std::vector<MemoryBuffer> free_host_, free_device_;
};

}  // namespace tcpx
