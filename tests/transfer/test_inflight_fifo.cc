#include "transfer/inflight_fifo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/log.h"

namespace tcpx {
namespace {

using enum ChunkState;

TEST(InflightFifo, FailureTakesEverythingThatHasNotEnded) {
  InflightFifo<int> fifo(Direction::kSend, 3);
  for (const int value : {1, 2}) fifo.post(value);
  fifo.advance(kPosted, kSent);
  fifo.fail_all();
  EXPECT_EQ(fifo.state_of(0), kSent);
  EXPECT_EQ(fifo.state_of(1), kFailed);
  EXPECT_EQ(fifo.state_of(2), kFailed);
  EXPECT_FALSE(fifo.has_room());
  EXPECT_EQ(fifo.oldest(kPosted), nullptr);
}

TEST(InflightFifo, EveryStateBeforeTheEndCanFailAndNoOther) {
  InflightFifo<int> fifo(Direction::kRecv, 4);
  for (const int value : {0, 1, 2, 3}) fifo.post(value);
  constexpr ChunkState kWay[] = {kPosted, kArrived, kUnpacking, kConsumed};
  // Chunk 0 goes to the end, the next one a station less far, ...
  for (int chunk = 0; chunk < 3; ++chunk) {
    for (int station = 0; station < 3 - chunk; ++station) fifo.advance(kWay[station], kWay[station + 1]);
  }
  for (uint64_t chunk = 0; chunk < 4; ++chunk) ASSERT_EQ(fifo.state_of(chunk), kWay[3 - chunk]);
  fifo.fail_all();
  EXPECT_EQ(fifo.state_of(0), kConsumed);
  for (const uint64_t chunk : {1, 2, 3, 4}) EXPECT_EQ(fifo.state_of(chunk), kFailed) << chunk;
}

// Where `advance` goes from each state is its one successor; anything else is a bug of ours.
TEST(InflightFifoDeathTest, NothingSkipsAStationOrGoesBack) {
  constexpr ChunkState kAll[] = {kQueued, kPosted, kArrived, kUnpacking, kConsumed, kSent, kFailed};
  for (const Direction direction : {Direction::kSend, Direction::kRecv}) {
    for (const ChunkState from : kAll) {
      for (const ChunkState to : kAll) {
        if (to != from && to == successor(direction, from)) continue;
        const auto advance = [&] {
          set_log_sink(nullptr, nullptr);
          InflightFifo<int> fifo(direction, 1);
          fifo.advance(from, to);
        };
        EXPECT_DEATH(advance(), "along the transition table")
            << name_of(direction) << " " << name_of(from) << " to " << name_of(to);
      }
    }
  }
}

TEST(InflightFifo, AgreesWithAListOfStatesOverRandomWalks) {
  // The model keeps one state per chunk and searches; the ring must agree.
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::minstd_rand rng(seed);
    const Direction direction = rng() % 2 == 0 ? Direction::kSend : Direction::kRecv;
    const uint32_t window = 1 + rng() % (4 * kQueueDepth);
    InflightFifo<uint64_t> fifo(direction, window);
    std::vector<ChunkState> model;
    for (int step = 0; step < 500; ++step) {
      const auto from = static_cast<ChunkState>(rng() % kChunkStateCount);
      const ChunkState to = successor(direction, from);
      if (to == from) continue;
      uint64_t working = 0;
      for (const ChunkState s : model) working += successor(direction, s) != s ? 1 : 0;
      if (from == kQueued) {
        ASSERT_EQ(fifo.has_room(), working < window);
        if (!fifo.has_room()) continue;
        fifo.post(model.size());
        model.push_back(kPosted);
      } else {
        const auto oldest = std::find(model.begin(), model.end(), from);
        const uint64_t* slot = fifo.oldest(from);
        ASSERT_EQ(slot != nullptr, oldest != model.end());
        if (slot == nullptr) continue;
        ASSERT_EQ(*slot, static_cast<uint64_t>(oldest - model.begin()));
        fifo.advance(from, to);
        *oldest = to;
      }
      for (uint64_t n = 0; n < model.size(); ++n) ASSERT_EQ(fifo.state_of(n), model[n]) << "chunk " << n << " seed " << seed;
    }
  }
}

// The log goes to stderr in the process that dies, because that is where gtest looks for the reason.
TEST(InflightFifoDeathTest, BrokenInvariantsEndTheProcess) {
  const auto over_window = [] {
    set_log_sink(nullptr, nullptr);
    InflightFifo<int> fifo(Direction::kSend, 1);
    fifo.post(1);
    fifo.post(2);
  };
  const auto leave_empty_state = [] {
    set_log_sink(nullptr, nullptr);
    InflightFifo<int> fifo(Direction::kSend, 2);
    fifo.advance(kPosted, kSent);
  };
  EXPECT_DEATH(over_window(), "only while the window has room");
  EXPECT_DEATH(leave_empty_state(), "only the state it is in");
}

}  // namespace
}  // namespace tcpx
