// Unpacks with device copies: one asynchronous copy call per stretch of neighbouring fragments. Needs no kernel, and no
// multiprocessor; the price is a copy call's launch per stretch. No CUDA in this header.
#pragma once

#include <memory>

#include "rx/unpacker.h"

namespace tcpx {

/// Pool and destination may be any memory that the device can address.
/// @return kUnsupported when there is no usable GPU, kInvalidArgument for no such device, kCuda.
Result<std::unique_ptr<Unpacker>> make_d2d_unpacker(int device);

}  // namespace tcpx
