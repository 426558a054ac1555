// Unpacks with device copies: one asynchronous copy per stretch of neighbouring fragments, all copies of a submit started
// together (copy_batch.h). Needs no kernel, and no multiprocessor; its cost is that of starting a copy, per stretch. No CUDA
// in this header.
#pragma once

#include <memory>

#include "rx/unpacker.h"

namespace tcpx {

/// Pool and destination may be any memory that the device can address.
/// @return kUnsupported when there is no usable GPU, kInvalidArgument for no such device, kCuda.
Result<std::unique_ptr<Unpacker>> make_d2d_unpacker(int device);

}  // namespace tcpx
