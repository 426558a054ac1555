// The GPU that is current on a thread, by the functions of the driver.
//
// The runtime has cudaSetDevice, which makes a context on the device that it goes back to, and every call that needs a context makes one on
// device 0 where none is current: in 0.12 s, with its share of that GPU's memory, for an application that never touches it (H200, CUDA 13.0).
// To push and pop leaves alone what the thread had, and costs 0.05 us.
#pragma once

#include "base/memory_ops.h"

namespace tcpx {

/// Makes the device's primary context, the one of the runtime, current on this thread. It is kept for the life of the process.
/// @return kUnsupported, kCuda
Result<EnteredDevice> enter_device(int device);

/// Makes the context current that any thread has entered last, if this one has none. Calls that name what they are for, as a stream, may
/// have any.
EnteredDevice enter_any_device();

}  // namespace tcpx
