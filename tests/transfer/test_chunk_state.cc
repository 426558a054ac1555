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

TEST(ChunkState, EveryStateBeforeTheEndCanFailAndNoOther) {
  for (const Direction direction : {Direction::kSend, Direction::kRecv}) {
    std::set<ChunkState> working;
    for (const ChunkState state : way(direction)) {
      if (successor(direction, state) != state) working.insert(state);
    }
    for (size_t i = 0; i < kChunkStateCount; ++i) {
      const auto state = static_cast<ChunkState>(i);
      EXPECT_EQ(is_allowed(direction, state, kFailed), working.count(state) == 1) << name_of(direction) << " " << name_of(state);
    }
  }
}

TEST(ChunkState, NothingSkipsAStationOrGoesBack) {
  for (const Direction direction : {Direction::kSend, Direction::kRecv}) {
    const auto states = way(direction);
    for (size_t i = 0; i < states.size(); ++i) {
      for (size_t j = 0; j < states.size(); ++j) {
        EXPECT_EQ(is_allowed(direction, states[i], states[j]), j == i + 1) << name_of(states[i]) << " to " << name_of(states[j]);
      }
      EXPECT_FALSE(is_allowed(direction, kFailed, states[i]));
    }
  }
}

TEST(ChunkState, NoTransitionIsListedTwiceAndAllHaveNames) {
  std::set<std::pair<std::pair<Direction, ChunkState>, ChunkState>> seen;
  for (const ChunkTransition& t : kChunkTransitions) {
    EXPECT_TRUE(seen.insert({{t.direction, t.from}, t.to}).second);
    EXPECT_NE(name_of(t.from), "?");
    EXPECT_NE(name_of(t.to), "?");
  }
}

}  // namespace
}  // namespace tcpx
