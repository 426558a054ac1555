// CurrentGpu: makes a GPU current on this thread for a scope, as everything that touches its memory needs.
#pragma once

#include "base/memory_ops.h"

namespace tcpx {

/// Does nothing without a GPU.
class CurrentGpu {
 public:
  CurrentGpu(MemoryOps& memory, int gpu_idx) : entered_(memory.enter(gpu_idx)) {}

 private:
  const Result<EnteredDevice> entered_;
};

}  // namespace tcpx
