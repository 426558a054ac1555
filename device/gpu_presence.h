// Detection of GPUs that this build can use, once per process, at run time; a CUDA build starts on a machine without a driver.
#pragma once

#include "tcpx/status.h"

namespace tcpx {

/// Number of usable GPUs, at least 1. The same answer for the life of the process.
/// @return kUnsupported, with the reason, when there is none: no CUDA in this build, no driver, no GPU. A driver that is
/// present but fails is reported in the same way and logged once, because the owner of that machine expects a GPU.
const Result<int>& gpu_count();

}  // namespace tcpx
