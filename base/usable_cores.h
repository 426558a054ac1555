// Cores that this process may use: those it may run on (sched_getaffinity), and no more than its control groups give it time on
// (cpu.max of version 2, cpu.cfs_quota_us of version 1). A container on a large machine has a few, and threads for all of the
// machine's would be in each other's way.
#pragma once

#include <cstdint>
#include <string>

namespace tcpx {

/// At least 1. Asked of the system once in a process's life: the answer takes as long as a dozen files are read.
uint32_t usable_cores();

/// The same, now. @param root prepended to /proc and /sys
uint32_t count_usable_cores(const std::string& root = "");

}  // namespace tcpx
