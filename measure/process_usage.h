// Resources that this process uses.
#pragma once

#include <cstdint>

namespace tcpx {

/// Processor time so far, user and system, all threads.
uint64_t process_cpu_ns();
/// Memory in core; 0 when the kernel does not tell.
uint64_t process_resident_bytes();

}  // namespace tcpx
