// Forks of this process. A fork leaves in the child what looks like this library's objects and has none of its threads, and a
// second holder of every socket: as long as it lives, the peers do not hear that the parent has died, and its ports stay taken.
#pragma once

#include <cstdint>

namespace tcpx {

/// Forks between the first call in this process's line of ancestors and now. Cheap. The first call installs what counts them.
uint64_t count_forks();

/// From now on a forked child gets a descriptor of /dev/null in the place of its copy of `fd`, before anything else runs there.
/// Whoever closes the number in the child closes nothing of anybody else's. Until `keep_in_child`. Any thread.
void drop_in_child(int fd);
/// The opposite, for a number that is about to be closed. Cheap, also for one that was never dropped.
void keep_in_child(int fd);

}  // namespace tcpx
