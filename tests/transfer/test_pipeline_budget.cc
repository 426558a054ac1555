// Connections that send under one budget: together they stay within its limit, and none waits for one that stalls, fails or ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"
#include "transfer/chunk_budget.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::expect_clean_success;
using testing::PipelinePair;
using testing::PipelinePairOptions;

constexpr size_t kTogether = 6, kChunk = 4096, kBytes = 40 * kChunk + 1;
constexpr Duration kLong = std::chrono::seconds(10), kShort = milliseconds(10);

/// Over 1 or 4 channels each.
class PipelineBudget : public ::testing::TestWithParam<size_t> {
 protected:
  /// @param first_delay, delay most tests until a chunk is sent
  void make(ChunkBudget& budget, size_t count, uint32_t first_delay = 8, uint32_t delay = 8) {
    PipelinePairOptions options = testing::channels(GetParam());
    options.send.limits.budget = &budget;
    for (size_t i = 0; i < count; ++i) {
      options.fake.max_delay_tests = i == 0 ? first_delay : delay;
      options.fake.seed = i + 1;
      pipelines_.push_back(std::make_unique<PipelinePair>(options));
    }
    sent_.resize(count);
    got_.resize(count);
  }
  void submit(size_t i) {
    sent_[i] = pipelines_[i]->submit_send(0, kBytes, i);
    got_[i] = pipelines_[i]->submit_recv(0, kBytes);
  }
  void step() {
    for (const auto& p : pipelines_) {
      p->send->progress();
      p->recv->progress();
      p->clock.advance(milliseconds(1));
    }
  }
  uint64_t in_flight() const {
    uint64_t sum = 0;
    for (const auto& p : pipelines_) sum += p->send->in_flight();
    return sum;
  }
  bool pending(size_t i) const { return pipelines_[i]->send->pending() > 0 || pipelines_[i]->recv->pending() > 0; }
  /// Steps until those are done. @return number of steps; `most` + 1 when they are not
  int drive(std::vector<size_t> which, int most = 2000) {
    int steps = 0;
    while (steps <= most && std::any_of(which.begin(), which.end(), [&](size_t i) { return pending(i); })) {
      step();
      ++steps;
    }
    return steps;
  }
  void expect_moved(size_t i) { expect_clean_success(*pipelines_[i], sent_[i], got_[i], 0, kBytes, i); }

  static ChunkBudget::Limits limits(Duration patience, size_t turn = 1) {
    return {.together = kTogether * kChunk, .turn = turn * kChunk, .channels = 1, .patience = patience};
  }
  ChunkBudget budget_{limits(kLong)}, short_budget_{limits(kShort)}, budget_of_long_turns_{limits(kLong, 3)};
  std::vector<std::unique_ptr<PipelinePair>> pipelines_;
  std::vector<TransferId> sent_, got_;
};
INSTANTIATE_TEST_SUITE_P(Channels, PipelineBudget, ::testing::Values(1, 4),
                         [](const auto& tested) { return std::to_string(tested.param); });

TEST_P(PipelineBudget, OneAloneHasItsWindow) {
  make(budget_, 2);
  submit(0);
  uint64_t most = 0;
  while (pending(0)) {
    step();
    most = std::max(most, in_flight());
  }
  EXPECT_GT(most, kTogether);
  expect_moved(0);
}

TEST_P(PipelineBudget, SeveralHoldNoMoreThanItSays) {
  make(budget_, 3);
  for (size_t i = 0; i < 3; ++i) submit(i);
  bool alone = false, shared = false;  // the first is alone at first
  int limited = 0;
  const auto sends = [](const auto& p) { return p->send->pending() > 0; };  // one that has sent all leaves the others its part
  for (int steps = 0; steps < 2000 && std::ranges::all_of(pipelines_, sends); ++steps) {
    step();
    alone |= in_flight() > kTogether;
    shared |= alone && in_flight() <= kTogether;
    if (!shared) continue;
    EXPECT_LE(in_flight(), kTogether + kTogether / 3)
        << "two may have half of it each when the third comes, which has its third at once";
    ++limited;
  }
  EXPECT_GT(limited, 20);
  EXPECT_LE(drive({0, 1, 2}), 2000);
  for (size_t i = 0; i < 3; ++i) expect_moved(i);
  EXPECT_EQ(budget_.held(), 0u);
}

// It was alone and holds more than all may together; the other one gets its part at once, and is as fast as that allows.
TEST_P(PipelineBudget, ASlowOneLeavesTheOtherItsPart) {
  make(budget_, 2, 2000);
  submit(1);
  const int alone = drive({1});
  expect_moved(1);
  submit(0);
  for (int i = 0; i < 4; ++i) step();
  EXPECT_GE(pipelines_[0]->send->in_flight(), kTogether);
  submit(1);
  const int beside = drive({1});
  EXPECT_LE(beside, 3 * alone);
  EXPECT_TRUE(pending(0));
  expect_moved(1);
  EXPECT_LE(drive({0}, 200000), 200000);
  expect_moved(0);
}

// There are more of them than parts, so the last one waits in line until their chunks no longer count.
TEST_P(PipelineBudget, ManySlowOnesHoldUpTheOthersForThePatience) {
  constexpr size_t kSlow = 12;
  make(short_budget_, kSlow + 1, 2000, 2000);
  for (size_t i = 0; i <= kSlow; ++i) submit(i);
  int steps = 0;
  while (pipelines_[kSlow]->send->in_flight() == 0 && steps < 200) {
    step();
    ++steps;
  }
  EXPECT_LT(steps, 60) << "ms; twelve chunks before it, six at a time";
  for (const auto& p : pipelines_) p->send->cancel(Status(Code::kCancelled, "test", "enough"));
}

TEST_P(PipelineBudget, AConnectionThatFailsGivesItsSharesBack) {
  testing::allow_log("channel gives up");
  make(budget_, 2, 2000);
  submit(0);
  for (int i = 0; i < 4; ++i) step();
  submit(1);
  ASSERT_GT(pipelines_[0]->send->in_flight(), 0u);
  const uint64_t before = budget_.held();
  pipelines_[0]->send->cancel(Status(Code::kCancelled, "test", "enough"));
  for (int i = 0; i < 5; ++i) pipelines_[0]->send->progress();
  EXPECT_LT(budget_.held(), before);
  EXPECT_LE(drive({1}, 200), 200);
  expect_moved(1);
}

TEST_P(PipelineBudget, NobodyWaitsForOneThatIsGone) {
  testing::allow_log("channel gives up");
  make(budget_, 3);
  for (size_t i = 0; i < 3; ++i) submit(i);
  for (int i = 0; i < 3; ++i) step();  // all three hold chunks or wait in line
  pipelines_[1]->send->cancel(Status(Code::kCancelled, "test", "enough"));
  pipelines_[1]->recv->cancel(Status(Code::kCancelled, "test", "enough"));
  pipelines_.erase(pipelines_.begin() + 1);
  for (size_t i : {0, 1}) {
    for (int steps = 0; steps < 2000 && pending(i); ++steps) step();
    EXPECT_FALSE(pending(i));
  }
  EXPECT_EQ(budget_.held(), 0u);
}

TEST_P(PipelineBudget, ThoseBehindOthersNeedNoTurns) {
  constexpr size_t kMany = 12;
  make(budget_of_long_turns_, kMany);
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_FALSE(pipelines_[i]->send->is_behind()) << "with nothing to send";
    submit(i);
  }
  int spared = 0, most_spared = 0;
  const auto any = [&](auto is) { return std::any_of(pipelines_.begin(), pipelines_.end(), is); };
  for (int steps = 0; steps < 4000 && any([](const auto& p) { return p->send->pending() > 0; }); ++steps) {
    EXPECT_TRUE(any([](const auto& p) { return !p->send->is_behind(); })) << "nobody is left who would move";
    spared = 0;
    for (const auto& p : pipelines_) {
      const bool behind = p->send->is_behind();
      EXPECT_FALSE(behind && p->send->in_flight() > 0);
      if (!behind) p->send->progress();
      spared += behind ? 1 : 0;
      p->recv->progress();
      p->clock.advance(milliseconds(1));
    }
    most_spared = std::max(most_spared, spared);
  }
  EXPECT_GE(most_spared, static_cast<int>(kMany / 2) - 1);
  std::vector<size_t> all(kMany);
  for (size_t i = 0; i < kMany; ++i) all[i] = i;
  EXPECT_LE(drive(all, 200), 200);
  for (size_t i = 0; i < kMany; ++i) expect_moved(i);
}

TEST_P(PipelineBudget, AFailedOneIsBehindNobody) {
  testing::allow_log("channel gives up");
  make(budget_, 12, 2000, 2000);
  for (size_t i = 0; i < 12; ++i) submit(i);
  for (int i = 0; i < 20; ++i) step();
  const auto behind = std::find_if(pipelines_.begin(), pipelines_.end(), [](const auto& p) { return p->send->is_behind(); });
  ASSERT_NE(behind, pipelines_.end());
  (*behind)->send->cancel(Status(Code::kCancelled, "test", "enough"));
  EXPECT_FALSE((*behind)->send->is_behind()) << "it has an end to make";
  for (const auto& p : pipelines_) p->send->cancel(Status(Code::kCancelled, "test", "enough"));
}

TEST(ChannelBudget, WhoAsksNoMoreLeavesTheLine) {
  testing::FakeNetPlugin fake;
  testing::ManualClock clock;
  ChunkBudget budget({.together = kChunk, .turn = kChunk, .patience = kLong});
  alignas(4096) static std::byte memory[kChunk];
  const auto limits = [&](const char& connection) {
    return ChannelLimits{.window = kQueueDepth, .budget = &budget, .connection = &connection};
  };
  const char connections[3] = {};
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<ChunkWork> work;
  for (const char& connection : connections) {
    Comm comm(fake, fake.make_wire().first);
    const auto handle = comm.register_memory(memory, kChunk, MemoryType::kHost);
    ASSERT_TRUE(handle.is_ok());
    work.push_back({.transfer = TransferId{1}, .chunk = {.bytes = kChunk}, .data = memory, .memory = *handle});
    channels.push_back(std::make_unique<Channel>(std::move(comm), ReceiveParts{}, clock, limits(connection)));
  }
  const auto post = [&](size_t i) { return channels[i]->try_post(work[i]); };
  ASSERT_TRUE(post(0));
  EXPECT_FALSE(post(1));
  channels[1]->progress();
  EXPECT_FALSE(post(2));
  EXPECT_FALSE(post(1));
  channels[0]->progress();  // its chunk is sent
  ASSERT_EQ(channels[0]->in_flight(), 0u);
  channels[1]->progress();
  EXPECT_FALSE(post(2)) << "one that has just asked stands before it";
  channels[1]->progress();
  EXPECT_TRUE(post(2));
  channels[2]->progress();
}

}  // namespace
}  // namespace tcpx
