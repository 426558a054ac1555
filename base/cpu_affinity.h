// CPU affinity of threads.
#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <string_view>

namespace tcpx {

/// Parses a list of cores as sysfs writes it ("0-3,8,10-11"). nullopt when it is not one.
std::optional<cpu_set_t> parse_cpu_list(std::string_view text);

/// Binds the calling thread to the cores of the NUMA node that it may run on. Does nothing for an unknown node (-1), or when the
/// thread may run on none of the node's cores. `root` is prepended to /sys.
/// @return true when the thread was bound
bool run_near(int numa_node, const std::string& root = "");

}  // namespace tcpx
