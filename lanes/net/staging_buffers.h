// StagingBuffers: a pool of the buffers that network lanes gather into and scatter from. Buffers are freed only when the endpoint ends:
// freeing GPU memory waits for all of the GPU's work, and some of that may wait for this endpoint (base/gpu_order.h).
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "base/memory_ops.h"

namespace tcpx {

enum class StagingKind : uint8_t {
  kHost,
  kDevice,
  kMapped,  ///< host memory that every GPU reaches too
};

/// One thread at a time: the one that makes progress.
class StagingBuffers {
 public:
  /// @param memory for the GPU, host_memory for the host; both must outlive the pool. @param bytes size of each buffer
  StagingBuffers(MemoryOps& memory, MemoryOps& host_memory, int device, size_t bytes)
      : memory_(memory), host_memory_(host_memory), device_(device), bytes_(bytes) {}

  Result<MemoryBuffer> take(StagingKind kind) {
    auto& free = free_[static_cast<size_t>(kind)];
    if (free.empty()) return make(kind);
    MemoryBuffer buffer = std::move(free.back());
    free.pop_back();
    return buffer;
  }
  void give_back(StagingKind kind, MemoryBuffer buffer) { free_[static_cast<size_t>(kind)].push_back(std::move(buffer)); }

 private:
  Result<MemoryBuffer> make(StagingKind kind) {
    switch (kind) {
      case StagingKind::kHost:
        return host_memory_.allocate_device(0, bytes_);
      case StagingKind::kDevice:
        return memory_.allocate_device(device_, bytes_);
      case StagingKind::kMapped:
        break;
    }
    return memory_.allocate_mapped(device_, bytes_);
  }

  MemoryOps& memory_;
  MemoryOps& host_memory_;
  const int device_;
  const size_t bytes_;
  std::array<std::vector<MemoryBuffer>, 3> free_;  // by kind
};

}  // namespace tcpx
