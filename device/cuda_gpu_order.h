// GpuOrder over CUDA. No CUDA in this header: every build includes it.
#pragma once

#include <memory>

#include "base/memory_ops.h"

namespace tcpx {

/// For streams and events of `device`. @param memory that of the GPU; must outlive the result.
std::unique_ptr<GpuOrder> make_cuda_gpu_order(int device, MemoryOps& memory);

}  // namespace tcpx
