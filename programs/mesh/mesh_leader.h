// Leader: rank 0 sends the members through the rounds and collects what they measured.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "programs/mesh/mesh_schedule.h"
#include "programs/mesh/rendezvous.h"

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

}  // namespace tcpx::mesh
