// StagingBuffers: a pool of the buffers that network lanes gather into and scatter from. Buffers are freed only when the endpoint ends:
// freeing GPU memory waits for all of the GPU's work, and some of that may wait for this endpoint (base/gpu_order.h). The driver takes
// its time to make one, too (11 ms for 16 MiB, on an H100), so a thread of the Unmapper does.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "lanes/unmapper.h"

namespace tcpx {

enum class StagingKind : uint8_t {
  kHost,
  kDevice,
  kMapped,  ///< host memory that every GPU reaches too
};

/// One thread at a time: the one that makes progress.
class StagingBuffers {
 public:
  /// All must outlive the pool.
  /// @param memory for the GPU, host_memory for the host @param bytes size of each buffer
  StagingBuffers(MemoryOps& memory, MemoryOps& host_memory, int device, size_t bytes, Unmapper& maker)
      : memory_(memory), host_memory_(host_memory), device_(device), bytes_(bytes), maker_(maker) {}

  /// False while a thread makes a buffer, which this begins.
  bool is_ready(StagingKind kind) {
    Pool& pool = pools_[static_cast<size_t>(kind)];
    if (kind == StagingKind::kHost || !pool.free.empty()) return true;
    if (pool.making == nullptr) pool.making = maker_.make(maker_of(kind));
    return pool.making->is_done();
  }
  /// Call when `is_ready`. @return the error of the allocator; the next `is_ready` begins anew
  Result<MemoryBuffer> take(StagingKind kind) {
    Pool& pool = pools_[static_cast<size_t>(kind)];
    if (!pool.free.empty()) {
      MemoryBuffer buffer = std::move(pool.free.back());
      pool.free.pop_back();
      return buffer;
    }
    if (kind == StagingKind::kHost) return maker_of(kind)();
    const auto made = std::exchange(pool.making, nullptr);
    return std::move(made->buffer);
  }
  void give_back(StagingKind kind, MemoryBuffer buffer) {
    pools_[static_cast<size_t>(kind)].free.push_back(std::move(buffer));
  }

 private:
  struct Pool {
    std::vector<MemoryBuffer> free;
    std::shared_ptr<PendingBuffer> making;
  };

  std::function<Result<MemoryBuffer>()> maker_of(StagingKind kind) const {
    switch (kind) {
      case StagingKind::kHost:
        return [&memory = host_memory_, bytes = bytes_] { return memory.allocate_device(0, bytes); };
      case StagingKind::kDevice:
        return [&memory = memory_, device = device_, bytes = bytes_] { return memory.allocate_device(device, bytes); };
      case StagingKind::kMapped:
        break;
    }
    return [&memory = memory_, device = device_, bytes = bytes_] { return memory.allocate_mapped(device, bytes); };
  }

  MemoryOps& memory_;
  MemoryOps& host_memory_;
  const int device_;
  const size_t bytes_;
  Unmapper& maker_;
  std::array<Pool, 3> pools_;  // by kind
};

}  // namespace tcpx
