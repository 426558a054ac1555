// TCP itself: what it carries on this machine, and who has received by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

/// `bytes` through `sockets` connections over loopback at once, from host memory to host memory, with a thread at each end of
/// each; several times after one that does not count, fewer rather than longer than `limit`. The first and the last are compared
/// byte for byte. @return seconds of each time, not empty
Result<std::vector<double>> time_raw_tcp(uint64_t bytes, size_t sockets, Duration limit);

/// TCP sockets of this process that have received `least` bytes or more.
size_t sockets_that_received(uint64_t least);

}  // namespace tcpx::doctor
