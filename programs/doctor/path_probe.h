// Full-sized datagrams towards a host, and what comes back of them.
#pragma once

#include <span>
#include <vector>

#include "programs/doctor/network_source.h"

namespace tcpx::doctor {

/// As NetworkSource::probe_paths says.
std::vector<PathProbe> probe_paths(const SocketAddress& target, std::span<const PathQuestion> questions, Duration limit);

}  // namespace tcpx::doctor
