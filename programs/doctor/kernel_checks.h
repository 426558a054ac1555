// Group "kernel": what the kernel can do for receiving into GPU memory, and its settings for TCP.
#pragma once

#include "programs/doctor/finding.h"
#include "programs/doctor/kernel_source.h"
#include "programs/doctor/machine.h"

namespace tcpx::doctor {

Findings check_kernel(const Machine& machine, const KernelSource& source);

}  // namespace tcpx::doctor
