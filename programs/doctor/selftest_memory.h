// Memory full of test data: a GPU's where there is one, else the host's.
#pragma once

#include <cstdint>
#include <memory>

#include "base/memory_ops.h"
#include "device/gpu_pattern.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

class SelftestMemory {
 public:
  /// @param gpu_idx the last GPU when there are fewer
  static Result<SelftestMemory> create(uint64_t bytes, int gpu_idx);

  void* data() const { return buffer_.device(); }
  size_t size() const { return buffer_.size(); }
  int gpu_idx() const { return gpu_idx_; }
  Status fill(uint64_t seed);
  /// @return kMismatch
  Status verify(uint64_t seed);

 private:
  std::unique_ptr<MemoryOps> memory_;
  MemoryBuffer buffer_;
  std::unique_ptr<GpuPattern> pattern_;  // none without a GPU
  int gpu_idx_ = 0;
};

}  // namespace tcpx::doctor
