// Test data in GPU memory, filled and checked there: byte for byte what measure/pattern.h makes on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/memory_ops.h"
#include "device/pattern_word.h"

namespace tcpx {

/// One thread at a time.
class GpuPattern {
 public:
  virtual ~GpuPattern() = default;
  /// @param memory must outlive the result. @return kUnsupported, with the reason, where `memory` is not that of a GPU; kCuda.
  static Result<std::unique_ptr<GpuPattern>> create(int device, MemoryOps& memory);

  /// Fills `bytes` bytes at `data`, memory that this GPU can write, with the stream of `seed` from `offset` on. Returns when they
  /// are written.
  virtual Status fill(std::byte* data, size_t bytes, uint64_t seed, uint64_t offset = 0) = 0;
  /// Compares all of them. Sees all writes before the call, by any stream or thread.
  virtual Result<PatternCheck> check(const std::byte* data, size_t bytes, uint64_t seed, uint64_t offset = 0) = 0;
};

/// Bytes of unallocated GPU memory. @return kUnsupported without CUDA; kCuda.
Result<uint64_t> free_gpu_bytes(int device);

}  // namespace tcpx
