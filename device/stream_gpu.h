// The GPU that a stream of the application's belongs to.
#pragma once

#include "device/cuda_handles.h"

namespace tcpx {

/// Finds the GPU of a stream, but for the handles of default streams, which every GPU has. Leaves the current device as it is.
/// @return kUnsupported when the driver cannot tell; kCuda
Result<int> gpu_of_stream(StreamView stream);

}  // namespace tcpx
