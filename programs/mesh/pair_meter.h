// measure_pair: how fast one rank sends to another, over a connection made for that pair: one size of test_tcpx_perf.
#pragma once

#include <functional>

#include "programs/mesh/mesh_message.h"
#include "programs/perf/perf_end.h"

namespace tcpx::mesh {

/// In each direction.
inline constexpr uint64_t kMostPairBytes = 0x7ffff000;

/// A MeasurePair (programs/mesh/mesh_rounds.h) of `iterations` transfers of the one size, moved back to back. @param place all but
/// the role and `before_timing`; its options are the sender's
/// @return kMismatch when a byte is wrong; kTimeout; the error of connection, plugin or peer.
Result<PairResult> measure_pair(const perf::EndPlace& place, BootstrapChannel& peer, bool sends,
                                const std::function<Status()>& start);

/// The most that one measurement takes.
Duration pair_limit(const perf::PerfOptions& options);

}  // namespace tcpx::mesh
