// A GPU as reports name it.
#pragma once

#include <cstdint>
#include <string>

#include "tcpx/status.h"

namespace tcpx {

/// "NVIDIA H200, driver 580.159.04, CUDA 13.0". @return kCuda; kInvalidArgument for no such GPU; kUnsupported in a build without
/// CUDA.
Result<std::string> gpu_description(int gpu);
/// All of it, used or not. @return as above.
Result<uint64_t> gpu_memory_bytes(int gpu);

}  // namespace tcpx
