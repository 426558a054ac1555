// Unpacks with one kernel launch per batch, whatever the number, length and alignment of its fragments: an UnpackLauncher on its
// own stream. No CUDA in this header.
#pragma once

#include <memory>

#include "base/memory_ops.h"
#include "rx/unpacker.h"

namespace tcpx {

/// Pool and destination must be addressable by kernels on `device`: its own memory, or mapped host memory. Blocks of one batch
/// whose pools have different bases take a launch each.
/// @param memory gives the memory that the kernel reads scatter lists from; must outlive the unpacker.
/// @return kUnsupported when there is no usable GPU or this build has no code for it, kInvalidArgument for no such device,
///         kBadConfig for UCCL_TCPX_UNPACK_BLOCKS and UCCL_TCPX_LAUNCH_DEBUG, kCuda.
Result<std::unique_ptr<Unpacker>> make_kernel_unpacker(int device, MemoryOps& memory);

}  // namespace tcpx
