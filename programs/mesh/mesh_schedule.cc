#include "programs/mesh/mesh_schedule.h"

#include "base/text.h"

namespace tcpx::mesh {
namespace {

Round rotation(int ranks, int shift) {
  Round round;
  for (int rank = 0; rank < ranks; ++rank) round.push_back({rank, (rank + shift) % ranks});
  return round;
}

}  // namespace

Result<std::vector<Round>> make_schedule(int ranks, MeshMode mode, int shift, bool together) {
  if (ranks < 2 || ranks > kMostRanks) {
    return Status(Code::kInvalidArgument, "plan mesh", concat(ranks, " ranks, allowed are 2 ... ", kMostRanks));
  }
  std::vector<Round> rounds;
  if (mode == MeshMode::kPermutation) {
    if (shift < 1 || shift >= ranks) {
      return Status(Code::kInvalidArgument, "plan mesh",
                    concat("a shift of ", shift, ", allowed are 1 ... ", ranks - 1, " for ", ranks, " ranks"));
    }
    rounds.push_back(rotation(ranks, shift));
    return rounds;
  }
  for (int s = 1; s < ranks; ++s) {
    Round round = rotation(ranks, s);
    if (together) {
      rounds.push_back(std::move(round));
    } else {
      for (const Pair& pair : round) rounds.push_back({pair});
    }
  }
  return rounds;
}

}  // namespace tcpx::mesh
