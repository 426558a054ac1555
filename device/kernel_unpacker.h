// Unpacks with one kernel launch per block, whatever the number, length and alignment of its fragments. No CUDA in this header.
#pragma once

#include <memory>

#include "base/memory_ops.h"
#include "rx/unpacker.h"

namespace tcpx {

/// Pool and destination must be addressable by kernels on `device`: its own memory, or mapped host memory.
/// @param memory gives the slots that the kernel reads scatter lists from; must outlive the unpacker.
/// @return kUnsupported when there is no usable GPU or this build has no code for it, kInvalidArgument for no such device, kCuda.
Result<std::unique_ptr<Unpacker>> make_kernel_unpacker(int device, MemoryOps& memory);

}  // namespace tcpx
