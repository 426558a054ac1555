// Forks of this process: what a fork leaves in the child looks like an endpoint and has no threads.
#pragma once

#include <cstdint>

namespace tcpx {

/// Forks between the first call in this process's line of ancestors and now. Cheap. The first call installs what counts them.
uint64_t count_forks();

}  // namespace tcpx
