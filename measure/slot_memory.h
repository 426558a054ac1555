// The memory that one end sends from or receives into: slots of test data, filled and checked where they lie.
#pragma once

#include <cstdint>
#include <memory>

#include "base/memory_ops.h"
#include "device/gpu_pattern.h"
#include "tcpx/types.h"

namespace tcpx::perf {

/// One thread at a time.
class SlotMemory {
 public:
  /// @param memory must outlive the result. @param bytes at least 1
  static Result<SlotMemory> create(MemoryOps& memory, MemoryType type, int gpu, uint64_t bytes);

  /// To be registered: a device address for kCuda.
  std::byte* address() const;
  size_t bytes() const { return buffer_.size(); }
  MemoryType type() const { return type_; }

  /// Fills `bytes` bytes from `offset` on with the stream of `seed`.
  Status fill(uint64_t offset, uint64_t bytes, uint64_t seed);
  /// Compares all of them with it.
  Result<PatternCheck> check(uint64_t offset, uint64_t bytes, uint64_t seed);

 private:
  SlotMemory(MemoryType type, MemoryBuffer buffer, std::unique_ptr<GpuPattern> on_gpu)
      : type_(type), buffer_(std::move(buffer)), on_gpu_(std::move(on_gpu)) {}

  MemoryType type_;
  MemoryBuffer buffer_;
  std::unique_ptr<GpuPattern> on_gpu_;  // for memory that the host cannot touch
};

}  // namespace tcpx::perf
