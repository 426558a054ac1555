// SegmentCopier over CUDA. No CUDA in this header: every build includes it.
#pragma once

#include <memory>

#include "base/memory_ops.h"

namespace tcpx {

/// @param memory that of the GPU; must outlive the copier.
/// @return kUnsupported when there is no usable GPU, this build has no code for it, or its driver lacks stream memory operations;
///         kInvalidArgument for no such device; kCuda.
Result<std::unique_ptr<SegmentCopier>> make_cuda_segment_copier(int device, MemoryOps& memory);

}  // namespace tcpx
