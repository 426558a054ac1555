// The parts of base/memory_ops.h over CUDA. No CUDA in this header: every build includes it.
#pragma once

#include <memory>

#include "base/memory_ops.h"

namespace tcpx {

/// @return kUnsupported with the reason when there is no GPU that this build can use (gpu_presence.h).
Result<std::unique_ptr<MemoryOps>> make_cuda_memory_ops();

/// For streams and events of `device`. @param memory that of the GPU; must outlive the result.
std::unique_ptr<GpuOrder> make_cuda_gpu_order(int device, MemoryOps& memory);

/// @param memory that of the GPU; must outlive the copier.
/// @return kUnsupported when there is no usable GPU, this build has no code for it, or its driver lacks stream memory operations;
///         kInvalidArgument for no such device; kCuda.
Result<std::unique_ptr<SegmentCopier>> make_cuda_segment_copier(int device, MemoryOps& memory);

}  // namespace tcpx
