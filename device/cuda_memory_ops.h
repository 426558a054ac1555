// MemoryOps over CUDA. No CUDA in this header: every build includes it.
#pragma once

#include <memory>

#include "base/memory_ops.h"

namespace tcpx {

/// @return kUnsupported with the reason when there is no GPU that this build can use (gpu_presence.h).
Result<std::unique_ptr<MemoryOps>> make_cuda_memory_ops();

}  // namespace tcpx
