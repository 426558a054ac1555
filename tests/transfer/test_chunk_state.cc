#include "transfer/chunk_state.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace tcpx {
namespace {

using enum ChunkState;

std::vector<ChunkState> way(Direction direction) {
  std::vector<ChunkState> states{kQueued};
  while (successor(direction, states.back()) != states.back()) {
    states.push_back(successor(direction, states.back()));
    if (states.size() > kChunkStateCount) break;
  }
  return states;
}

TEST(ChunkState, EachDirectionHasOneWay) {
  EXPECT_EQ(way(Direction::kRecv), (std::vector{kQueued, kPosted, kArrived, kUnpacking, kConsumed}));
  EXPECT_EQ(way(Direction::kSend), (std::vector{kQueued, kPosted, kSent}));
}

TEST(ChunkState, NothingLeadsIntoAFailureOrOutOfIt) {
  for (const ChunkTransition& t : kChunkTransitions) {
    EXPECT_NE(t.from, kFailed);
    EXPECT_NE(t.to, kFailed);
  }
}

TEST(ChunkState, NoStateHasTwoSuccessorsAndAllHaveNames) {
  std::set<std::pair<Direction, ChunkState>> seen;
  for (const ChunkTransition& t : kChunkTransitions) {
    EXPECT_TRUE(seen.insert({t.direction, t.from}).second);
    EXPECT_NE(name_of(t.from), "?");
    EXPECT_NE(name_of(t.to), "?");
  }
}

}  // namespace
}  // namespace tcpx
