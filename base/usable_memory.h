// Memory that this process may use: the machine's, or less where a control group (a container) bounds it.
#pragma once

#include <cstdint>
#include <string>

namespace tcpx {

/// Asked once for the process, in bytes.
uint64_t usable_memory();
/// @param root in front of the files of the control groups; for tests
uint64_t count_usable_memory(const std::string& root = "");

}  // namespace tcpx
