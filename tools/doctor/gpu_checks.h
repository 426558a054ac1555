// Group "gpu": the GPUs, their driver, and how near they are to the network.
#pragma once

#include "tools/doctor/finding.h"
#include "tools/doctor/gpu_build.h"
#include "tools/doctor/gpu_source.h"
#include "tools/doctor/machine.h"

namespace tcpx::doctor {

Findings check_gpu(const Machine& machine, GpuSource& source, const GpuBuild& build = this_build());

}  // namespace tcpx::doctor
