// CurrentGpu: makes a GPU current on this thread for a scope, as everything that touches its memory needs.
#pragma once

#include <optional>

#include "base/memory_ops.h"

namespace tcpx {

/// Does nothing without a GPU.
class CurrentGpu {
 public:
  CurrentGpu(MemoryOps& memory, int gpu_idx) : memory_(memory) {
    if (!memory.has_gpu()) return;
    const auto current = memory.current_device();
    if (!current.is_ok() || *current == gpu_idx) return;
    if (memory.set_current_device(gpu_idx).is_ok()) back_to_ = *current;
  }
  ~CurrentGpu() {
    if (back_to_) (void)memory_.set_current_device(*back_to_);
  }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  MemoryOps& memory_;
  std::optional<int> back_to_;
};

}  // namespace tcpx
