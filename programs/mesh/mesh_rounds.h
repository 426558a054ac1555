// Rounds of a mesh: rank 0 sends the members through them and collects what they measured; a member does what the leader says and
// reports how it went. Rank 0 is a member, too.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "programs/mesh/mesh_message.h"
#include "programs/mesh/mesh_schedule.h"
#include "programs/mesh/rendezvous.h"
#include "transfer/bootstrap.h"

namespace tcpx::mesh {

/// Outcome of one pair of the schedule.
struct PairOutcome {
  Pair pair;
  Result<PairResult> result;  ///< the receiver's: it knows when the last byte was in place
};

struct MeshOutcome {
  std::vector<PairOutcome> pairs;  ///< in the order of the schedule; when interrupted, those measured by then
  bool interrupted = false;
};

struct LeadOptions {
  Duration round{};                                           ///< most a round may take, as the members have it
  const std::atomic<bool>* stop = nullptr;                    ///< true ends the mesh after the round under way; may be null
  std::function<void(const PairOutcome&)> on_pair = nullptr;  ///< called after each round for its pairs; may be empty
};

/// Leads `members`, who are all in serve_rounds, through `rounds` and dismisses them. A pair that fails does not end the
/// mesh; neither does a member that is lost, but the pairs it is part of fail from then on.
MeshOutcome lead_mesh(std::vector<Member>& members, const std::vector<Round>& rounds, const LeadOptions& options);

/// The more telling of two errors about the same pair: from the end that saw it happen, not the one that heard of it. One of
/// them at least must be an error.
Status telling_error(const Status& receiver, const Status& sender);

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
