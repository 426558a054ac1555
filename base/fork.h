// Handles forks of this process. A forked child has copies of this library's objects but none of its threads, and has a copy of
// every socket. While the child lives, peers would not notice that the parent has died, and the parent's ports would stay in use.
#pragma once

#include <cstdint>

namespace tcpx {

/// Number of forks since the first call in this process or its ancestors. Cheap. The first call installs the handler that
/// counts them.
uint64_t count_forks();

/// From now until `keep_in_child`, a forked child gets a descriptor of /dev/null in place of its copy of `fd`, before anything
/// else runs there. The number stays taken, so closing it in the child closes no other descriptor. Any thread.
void drop_in_child(int fd);
/// Undoes `drop_in_child` for a descriptor that is about to be closed. Cheap, also for one that was never dropped.
void keep_in_child(int fd);

}  // namespace tcpx
