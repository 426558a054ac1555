// Member: a rank's part in the rounds. It does what the leader says and reports how it went.
#pragma once

#include <atomic>
#include <functional>

#include "base/clock.h"
#include "programs/mesh/mesh_message.h"
#include "transfer/bootstrap.h"

namespace tcpx::mesh {

/// Measures one pair; `peer` leads to the other end, which is in the same function with the other value of `sends`. `start` is
/// called once, when everything is set up and warm: it returns when all pairs of the round are there, so that they run at the
/// same time, and its error ends the measurement. Called from two threads at once when a rank sends and receives in a round.
using MeasurePair = std::function<Result<PairResult>(BootstrapChannel& peer, bool sends, const std::function<Status()>& start)>;

struct MeshLimits {
  Duration step{};   ///< for connecting two ranks
  Duration round{};  ///< for a whole round; longer than any measurement of a pair
};

/// Serves rounds until the leader ends. A pair that fails is reported and is no error here.
/// @param server where the senders of this rank connect
/// @param leader from join_mesh; left open, for `finish`
/// @return an error between this rank and its leader
Status serve_rounds(BootstrapChannel& leader, BootstrapServer& server, int rank, const MeshLimits& limits,
                    const MeasurePair& measure, const std::atomic<bool>* stop);

}  // namespace tcpx::mesh
