// Number of cores that this process may use: those on which it may run (sched_getaffinity), but no more than the CPU time that
// its control groups allow (cpu.max of version 2, cpu.cfs_quota_us of version 1). A container on a large machine may use only a
// few, and a thread for each of the machine's cores would slow down the others.
#pragma once

#include <cstdint>
#include <string>

namespace tcpx {

/// Number of usable cores, at least 1. Determined once in a process, because that reads a dozen files.
uint32_t usable_cores();
/// The number if it has been determined, else 0. Reads nothing and takes no memory.
uint32_t known_usable_cores() noexcept;
/// True for fewer cores than a loopback transfer needs: a caller and an I/O thread at either end. Who polls on so few takes the core from
/// those whom it waits for. @param cores 0: unknown, so not few
inline bool cores_are_few(uint32_t cores = usable_cores()) {
  return cores > 0 && cores < 4;
}

/// Determines the number anew. @param root prepended to /proc and /sys
uint32_t count_usable_cores(const std::string& root = "");

}  // namespace tcpx
