// Where a thread runs.
#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <string_view>

namespace tcpx {

/// A list of cores as sysfs writes it ("0-3,8,10-11"). nullopt when it is none.
std::optional<cpu_set_t> parse_cpu_list(std::string_view text);

/// Keeps the calling thread on the cores of that NUMA node, as far as it may run there. Nothing happens for an unknown node (-1),
/// or when the thread may run on none of its cores. `root` stands in front of /sys.
/// @return true when the thread was bound
bool run_near(int numa_node, const std::string& root = "");

}  // namespace tcpx
