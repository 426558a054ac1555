// Schedule of senders and receivers: rounds of pairs that are measured at the same time. Pure.
//
// Rotation s has rank i send to rank (i + s) mod n: everybody sends to one and receives from one. The rotations 1 ... n - 1 hold
// every ordered pair exactly once.
#pragma once

#include <vector>

#include "tcpx/status.h"

namespace tcpx::mesh {

inline constexpr int kMostRanks = 256;

struct Pair {
  int sender = 0;
  int receiver = 0;
  bool operator==(const Pair&) const = default;
};

/// Measured at the same time: no rank sends twice or receives twice.
using Round = std::vector<Pair>;

enum class MeshMode {
  kPairs,        ///< every ordered pair
  kPermutation,  ///< one rotation, all its pairs at once
};

/// @param ranks 2 ... kMostRanks
/// @param shift kPermutation: 1 ... ranks - 1; ignored otherwise
/// @param together kPairs: a whole rotation per round; else one pair per round, which then has the network for itself
/// @return kInvalidArgument for ranks or shift out of range
Result<std::vector<Round>> make_schedule(int ranks, MeshMode mode, int shift, bool together);

}  // namespace tcpx::mesh
