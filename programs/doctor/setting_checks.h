// What the kernel is told about TCP: the part of group "kernel" that looks at sysctls and limits.
#pragma once

#include "programs/doctor/finding.h"
#include "programs/doctor/kernel_source.h"
#include "programs/doctor/machine.h"

namespace tcpx::doctor {

/// A check is named by its sysctl: "net.ipv4.tcp_rmem". What the machine does not show, as a container may not, does not apply.
Findings check_settings(const Machine& machine, const Expectation& expected, const KernelSource& source);

}  // namespace tcpx::doctor
