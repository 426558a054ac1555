// Group "gpu": the GPUs, their driver, and how near they are to the network.
#pragma once

#include "programs/doctor/finding.h"
#include "programs/doctor/gpu_build.h"
#include "programs/doctor/gpu_source.h"
#include "programs/doctor/machine.h"

namespace tcpx::doctor {

Findings check_gpu(const Machine& machine, GpuSource& source, const GpuBuild& build = this_build());

}  // namespace tcpx::doctor
