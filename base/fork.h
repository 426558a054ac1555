// Forks of this process. A forked child has copies of this library's objects but none of its threads, and holds every socket a
// second time: while it lives, the peers do not notice that the parent has died, and its ports stay in use.
#pragma once

#include <cstdint>

namespace tcpx {

/// Number of forks since the first call in this process or its ancestors. Cheap. The first call installs the handler that
/// counts them.
uint64_t count_forks();

/// From now until `keep_in_child`, a forked child gets a descriptor of /dev/null in place of its copy of `fd`, before anything
/// else runs there: closing that number in the child closes no other descriptor. Any thread.
void drop_in_child(int fd);
/// The opposite, for a number that is about to be closed. Cheap, also for one that was never dropped.
void keep_in_child(int fd);

}  // namespace tcpx
