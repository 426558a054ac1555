// Memory that this process may use: the machine's, or less when a control group (a container) limits it.
#pragma once

#include <cstdint>
#include <string>

namespace tcpx {

/// Usable memory in bytes. Determined once in a process.
uint64_t usable_memory();
/// Determines it anew. @param root prepended to the paths of the control groups, for tests
uint64_t count_usable_memory(const std::string& root = "");

}  // namespace tcpx
