// Choice of the channel for the next chunk.
#include "transfer/chunk_router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tcpx {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kChunkBytes = 512 * 1024;
constexpr uint32_t kAll = 0xffff;
constexpr uint64_t kPlenty = uint64_t{1} << 40;

/// Channels that deliver their chunks one after another, each at its own rate and with its own window.
class Network {
 public:
  explicit Network(std::vector<double> chunks_per_ms, uint32_t window = 16)
      : router(chunks_per_ms.size()), rates_(std::move(chunks_per_ms)), window_(window), queues_(rates_.size()) {}

  /// Moves a transfer. @return milliseconds until everything is delivered
  double move(uint64_t chunks) {
    const TimePoint begin = now_;
    uint64_t posted = 0, done = 0;
    while (done < chunks) {
      while (posted < chunks) {
        uint32_t room = 0;
        for (size_t i = 0; i < queues_.size(); ++i) room |= queues_[i].waiting < window_ ? 1u << i : 0;
        const auto path = router.pick(room, kChunkBytes, (chunks - posted) * kChunkBytes);
        if (!path) break;
        Queue& queue = queues_[*path];
        if (queue.waiting++ == 0) queue.next = now_ + time_of(*path);
        ++queue.posted;
        queue.most = std::max(queue.most, queue.waiting);
        router.posted(*path, kChunkBytes, now_);
        ++posted;
      }
      now_ += microseconds(10);
      for (size_t i = 0; i < queues_.size(); ++i) {
        Queue& queue = queues_[i];
        while (queue.waiting > 0 && queue.next <= now_) {
          --queue.waiting;
          queue.next += time_of(i);
          router.delivered(i, kChunkBytes, now_);
          ++done;
        }
      }
      if (now_ - begin > std::chrono::seconds(1000)) return 1e9;  // no channel is given the rest
    }
    return std::chrono::duration<double, std::milli>(now_ - begin).count();
  }
  void pass(Duration time) { now_ += time; }
  uint64_t posted(size_t channel) const { return queues_[channel].posted; }
  /// Most chunks that the channel has held since the last call.
  uint32_t most_held(size_t channel) { return std::exchange(queues_[channel].most, 0); }
  void set_rate(size_t channel, double chunks_per_ms) { rates_[channel] = chunks_per_ms; }

  ChunkRouter router;

 private:
  struct Queue {
    uint32_t waiting = 0;
    uint32_t most = 0;
    uint64_t posted = 0;
    TimePoint next{};
  };
  Duration time_of(size_t channel) const {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(1 / rates_[channel]));
  }
  std::vector<double> rates_;
  uint32_t window_;
  std::vector<Queue> queues_;
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
};

TEST(ChunkRouter, EqualChannelsShareEqually) {
  Network network({10, 10, 10, 10});
  for (int i = 0; i < 10; ++i) network.move(128);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(static_cast<double>(network.posted(i)), 320, 16) << "channel " << i;
}

TEST(ChunkRouter, ASlowChannelCostsNoMoreThanItsShare) {
  for (const double slow : {0.01, 0.1, 0.3, 0.9}) {
    Network equal({10, 10, 10, 10}), uneven({10, 10, 10, 10 * slow});
    equal.move(128);
    uneven.move(128);  // learns
    double equal_ms = 0, uneven_ms = 0;
    for (int i = 0; i < 10; ++i) {
      equal_ms += equal.move(128);
      uneven_ms += uneven.move(128);
    }
    // The time by the rates alone, plus up to one last chunk of the slow channel.
    const double ideal = equal_ms * 4 / (3 + slow);
    EXPECT_LT(uneven_ms, ideal * 1.08) << slow;
    EXPECT_GT(uneven_ms, ideal * 0.97) << slow << ": faster than the network";
  }
}

TEST(ChunkRouter, ASlowChannelTakesNoMoreThanKeepsItBusy) {
  // Full windows of the fast ones are 1.6 ms, and two chunks of the slow one are 2.
  Network network({10, 10, 10, 1});
  network.move(1000);
  network.most_held(3);
  const uint64_t before = network.posted(3);
  network.move(10000);
  EXPECT_LE(network.most_held(3), 3u);
  EXPECT_NEAR(static_cast<double>(network.posted(3) - before), 10000.0 / 31, 10) << "it was never idle";
}

TEST(ChunkRouter, AChannelSlowerThanTheMemoryIsNoFasterThanItIs) {
  // 50 MB/s and 5 MB/s: the slow one delivers every 100 ms.
  Network network({0.1, 0.1, 0.1, 0.01});
  network.move(1000);
  EXPECT_NEAR(static_cast<double>(network.posted(3)), 1000.0 / 31, 12);
  EXPECT_NEAR(network.router.rate(3) / (0.01e3 * kChunkBytes), 1, 0.3);
}

TEST(ChunkRouter, AnUnknownChannelBeginsWithFewChunks) {
  ChunkRouter router(2);
  const TimePoint now{};
  size_t given = 0;
  while (const auto path = router.pick(kAll, kChunkBytes, kPlenty)) {
    router.posted(*path, kChunkBytes, now);
    ASSERT_LE(++given, 100u);
  }
  EXPECT_EQ(given, 2 * ChunkRouter::kFirstChunks);
}

TEST(ChunkRouter, ALoneChannelAlwaysTakes) {
  ChunkRouter router(1);
  EXPECT_EQ(router.pick(1, kChunkBytes, kChunkBytes), size_t{0});
  router.posted(0, kChunkBytes, TimePoint());
  router.delivered(0, kChunkBytes, TimePoint() + milliseconds(900));
  EXPECT_EQ(router.pick(1, kChunkBytes, kChunkBytes), size_t{0});
  EXPECT_EQ(router.pick(0, kChunkBytes, kChunkBytes), std::nullopt) << "no room";
}

TEST(ChunkRouter, AClosedChannelIsLeftOut) {
  ChunkRouter router(2);
  router.closed(0);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(router.pick(kAll, kChunkBytes, kPlenty), size_t{1});
    router.posted(1, kChunkBytes, TimePoint());
  }
  router.closed(1);
  EXPECT_EQ(router.pick(kAll, kChunkBytes, kPlenty), std::nullopt);
}

TEST(ChunkRouter, AWaitOfTheSenderIsNotTakenForASlowNetwork) {
  Network network({10, 10});
  network.move(64);
  const double before = network.router.rate(0);
  // One chunk is posted long before it arrives, because the sender has nothing to send.
  const TimePoint now = TimePoint() + std::chrono::hours(2);
  network.router.posted(0, kChunkBytes, now);
  network.router.delivered(0, kChunkBytes, now + std::chrono::seconds(10));
  EXPECT_GT(network.router.rate(0), before / 4);
}

TEST(ChunkRouter, AChannelThatBecomesFastAgainIsUsedAgain) {
  Network network({10, 0.5});
  for (int i = 0; i < 5; ++i) network.move(128);
  network.set_rate(1, 10);
  for (int i = 0; i < 10; ++i) network.move(128);
  const uint64_t before = network.posted(1);
  network.move(1000);
  EXPECT_NEAR(static_cast<double>(network.posted(1) - before), 500, 60);
}

// New connections and untouched memory make the first chunks slow. That is no measure of its rate, and must not keep the
// channel idle.
TEST(ChunkRouter, AChannelThatBeginsSlowlyIsAskedAgain) {
  Network network({10, 10, 0.02, 0.02});
  network.move(8);
  network.set_rate(2, 10);
  network.set_rate(3, 10);
  for (int i = 0; i < 6000; ++i) network.move(2);  // short transfers, that the fast channels could carry alone
  for (int i = 0; i < 10; ++i) network.move(128);
  const uint64_t before = network.posted(2);
  for (int i = 0; i < 10; ++i) network.move(128);
  EXPECT_NEAR(static_cast<double>(network.posted(2) - before), 320, 16);
}

TEST(ChunkRouter, AnyNetworkDeliversEverything) {
  for (uint32_t seed = 1; seed < 200; ++seed) {
    std::vector<double> rates;
    for (uint32_t i = 0; i < 1 + seed % kMaxChannels; ++i)
      rates.push_back(0.05 + static_cast<double>((seed * 7919 + i * 104729) % 1000) / 50);
    Network network(rates, 1 + seed % 16);
    for (const uint64_t chunks : {1, 2, 50}) EXPECT_LT(network.move(chunks), 1e8) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tcpx
