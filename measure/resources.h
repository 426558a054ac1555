// Memory that a measurement may take, and what this process uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tcpx/status.h"

namespace tcpx {

/// Bytes of host memory that this process can still get without swapping: of the machine, and of its control group where one
/// limits it. @return kSystem when nobody says.
Result<uint64_t> free_host_bytes();

/// From the text of /proc/meminfo. @return nullopt when it does not say.
std::optional<uint64_t> available_in_meminfo(std::string_view meminfo);
/// From the texts of a control group's memory.max and memory.stat; file pages do not count, the kernel drops them when it must.
/// @return nullopt without a limit.
std::optional<uint64_t> available_in_group(std::string_view memory_max, std::string_view memory_stat);

/// Processor time so far, user and system, all threads.
uint64_t process_cpu_ns();
/// Memory in core; 0 when the kernel does not tell.
uint64_t process_resident_bytes();
/// TCP sockets of this process that have received `least` bytes or more.
size_t sockets_that_received(uint64_t least);

}  // namespace tcpx
