// Memory that something measured sends from or receives into, full of test data: filled, blanked and compared where it lies, on
// the host or on a GPU.
#pragma once

#include <cstdint>
#include <memory>

#include "base/memory_ops.h"
#include "device/gpu_pattern.h"
#include "tcpx/types.h"

namespace tcpx {

/// One thread at a time. Default-constructed: none.
class TestMemory {
 public:
  TestMemory() = default;
  /// @param memory must outlive the result. @param type kCuda: its device memory; kHost: addressed by both the host and kernels
  /// @param bytes at least 1; rounded up to whole pages. @return also kSystem without room
  static Result<TestMemory> create(MemoryOps& memory, MemoryType type, int gpu, uint64_t bytes);

  /// To be registered: a device address for kCuda.
  std::byte* data() const { return type_ == MemoryType::kCuda ? buffer_.device() : buffer_.host(); }
  uint64_t size() const { return buffer_.size(); }
  MemoryType type() const { return type_; }

  /// Fills `bytes` bytes from `off` on with the stream of `seed` (below UINT64_MAX), which begins at `stream_off` there.
  Status fill(uint64_t off, uint64_t bytes, uint64_t seed, uint64_t stream_off = 0);
  /// Overwrites them, so that what was there before cannot pass for what is to come.
  Status blank(uint64_t off, uint64_t bytes);
  /// Compares all of them with the stream.
  Result<PatternCheck> check(uint64_t off, uint64_t bytes, uint64_t seed, uint64_t stream_off = 0);
  /// The same as a Status: kMismatch naming the first wrong byte, and how many differ.
  Status verify(uint64_t off, uint64_t bytes, uint64_t seed, uint64_t stream_off = 0);

 private:
  TestMemory(MemoryType type, MemoryBuffer buffer, std::unique_ptr<GpuPattern> on_gpu)
      : type_(type), buffer_(std::move(buffer)), on_gpu_(std::move(on_gpu)) {}

  MemoryType type_{};
  MemoryBuffer buffer_;
  std::unique_ptr<GpuPattern> on_gpu_;  // for memory that the host cannot touch
};

}  // namespace tcpx
