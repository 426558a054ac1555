// FileLane: a way for bytes that is only here for tests. It goes through a file in memory, and shows what a new way takes: this, and
// one entry of `ways_on_host`.
#pragma once

#include "lanes/lane.h"

namespace tcpx::testing {

inline constexpr Way kFile{20};

/// @return as MakeLane
std::unique_ptr<Lane> make_file_lane(const LaneMaking& making, bool receives);
/// Jobs that file lanes of this process have moved.
uint64_t moved_by_file();

}  // namespace tcpx::testing
