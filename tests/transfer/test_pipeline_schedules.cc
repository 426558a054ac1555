// Random schedules of both ends: turns of the ends, number of channels, answers of the plugin, delay and capacity of the
// unpacker, delay of messages between the halves, transfers without a copy, point of failure. Under any schedule, data is
// exact, requests are used by the rules, and a failure is reported only when nothing touches the memory any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"
#include "tests/support/same_bytes.h"

namespace tcpx {
namespace {

using testing::Call;
using testing::FaultPolicy;
using testing::PipelinePair;
using testing::PipelinePairOptions;

constexpr size_t kSlotBytes = 1024;  // a transfer's place in the buffers, longer than any transfer

struct Schedule {
  explicit Schedule(uint64_t schedule_seed)
      : seed(schedule_seed), rng(static_cast<std::minstd_rand::result_type>(schedule_seed * 2654435761u % 2147483646u + 1)) {}
  uint32_t pick(uint32_t low, uint32_t high) { return low + static_cast<uint32_t>(rng() % (high - low + 1)); }

  PipelinePairOptions options(bool loses_channels) {
    PipelinePairOptions o;
    o.channels = loses_channels ? pick(2, 4) : pick(0, 1) == 0 ? 1 : pick(2, 4);
    const bool failover = loses_channels || pick(0, 3) == 0;
    const uint32_t page_bytes = pick(16, 128);
    const uint32_t chunk_bytes = pick(1, 300);
    // The pool must hold the largest message in its smallest fragments, or nothing would ever move.
    o.fake = {.page_bytes = page_bytes,
              .page_count = (300 * 4 / page_bytes + pick(4, 40)) * static_cast<uint32_t>(o.channels),
              .shuffle_fragments = pick(0, 1) == 1,
              .ragged_fragments = pick(0, 1) == 1,
              .max_delay_tests = pick(0, 3),
              .seed = seed};
    o.send = {.limits = {.window = pick(1, kQueueDepth)}, .chunk_bytes = chunk_bytes, .max_transfers = 4};
    o.recv = {.limits = {.window = pick(1, kQueueDepth)}, .chunk_bytes = chunk_bytes, .max_transfers = 4};
    o.send.longest_chunk_bytes = o.recv.longest_chunk_bytes = seed % 2 == 0 ? 0 : std::min(300u, 8 * chunk_bytes);
    o.send.failover = o.recv.failover = failover;
    o.recv_type = pick(0, 3) == 0 ? MemoryType::kHost : MemoryType::kCuda;
    o.memory_bytes = 4 * kSlotBytes;
    return o;
  }

  uint64_t seed;
  std::minstd_rand rng;
};

struct Moved {
  TransferId id{};
  size_t bytes = 0;
  TransferState end = TransferState::kPending;
};

void poll_all(PipelinePair& p, Pipeline& connection, std::vector<Moved>& transfers, bool receives, uint64_t seed) {
  for (size_t i = 0; i < transfers.size(); ++i) {
    Moved& moved = transfers[i];
    if (moved.end != TransferState::kPending) continue;
    const TransferAnswer answer = connection.poll(moved.id);
    moved.end = answer.state;
    if (answer.state == TransferState::kPending) continue;
    ASSERT_NE(answer.state, TransferState::kUnknown) << "seed " << seed;
    if (!receives) continue;
    if (answer.state == TransferState::kFailed) {
      ASSERT_EQ(p.unpacker.in_flight(), 0u) << "failure told while copies run, seed " << seed;
      continue;
    }
    const Status data = verify_pattern(p.received(i * kSlotBytes, moved.bytes), seed + i);
    ASSERT_TRUE(data.is_ok()) << data.to_string() << ", seed " << seed;
  }
}

// Number of schedules that reached each event.
struct Tried {
  uint64_t loss = 0;     // a channel lost with work in flight
  uint64_t batch = 0;    // a submit of several blocks
  uint64_t refusal = 0;  // a submit to a full unpacker
};

enum class Fate {
  kNone,
  kBreaks,         // the plugin breaks, permanently, at one end
  kLosesChannels,  // all but one, one after the other, at either end, with failover
};

void run_schedule(uint64_t seed, Fate fate, Tried& tried) {
  const bool breaks = fate == Fate::kBreaks;
  Schedule s(seed);
  PipelinePairOptions options = s.options(fate == Fate::kLosesChannels);
  FaultPolicy policy{.seed = s.pick(1, 1u << 30), .delay_percent = s.pick(0, 40)};
  if (breaks) {
    policy.break_at = s.pick(1, 120);
    if (s.pick(0, 1) == 0) policy.break_with = testing::plugin_refused("scripted", "no");
  }
  options.faults = policy;
  PipelinePair p(options);
  p.to_sender->most_per_pump = s.pick(1, 5);
  p.to_receiver->most_per_pump = s.pick(1, 5);
  size_t lost = 0;
  const auto lose_channel = [&] {
    if (fate != Fate::kLosesChannels || lost + 1 == options.channels) return;
    const std::string nic = "nic" + std::to_string(lost++);
    (s.pick(0, 1) == 0 ? p.sender_lost : p.receiver_lost).insert(nic);
    p.clock.advance(std::chrono::milliseconds(100));
    tried.loss += p.send->in_flight() > 0 && p.recv->in_flight() > 0 ? 1 : 0;
  };
  p.unpacker.queries_needed = s.pick(1, 5);
  p.unpacker.max_in_flight = s.pick(1, 3);
  // Half of the schedules receive some transfers in place and some through the pool.
  const bool mixed = s.pick(0, 1) == 1;
  const RegisteredMemory memories[] = {p.target_as(MemoryType::kHost), p.target_as(MemoryType::kCuda)};

  // A sender may wait for the end of each transfer before it begins the next, while the receiver runs ahead.
  const bool in_turn = s.pick(0, 2) == 0;
  std::vector<Moved> sends, recvs;
  const uint32_t count = s.pick(1, 4);
  std::vector<size_t> sizes;
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < count; ++i) {
    sizes.push_back(s.pick(0, 5) == 0 ? 0 : s.pick(1, 700));
    chunks += ChunkPlan::make(sizes.back(), options.send.chunk_bytes, options.send.longest_chunk_bytes, options.channels)->count();
  }
  const auto submit = [&](Pipeline& connection, std::vector<Moved>& transfers, bool receives) {
    const size_t i = transfers.size();
    if (i == count || !connection.status().is_ok()) return;
    if (!receives && in_turn && connection.pending() > 0) return;
    const auto submit_recv = [&] {
      return p.submit_recv(mixed ? memories[s.pick(0, 1)] : p.recv_memory, i * kSlotBytes, sizes[i]);
    };
    transfers.push_back({receives ? submit_recv() : p.submit_send(i * kSlotBytes, sizes[i], seed + i), sizes[i]});
  };
  const auto ended = [&](const Pipeline& connection, const std::vector<Moved>& transfers) {
    return connection.pending() == 0 && (transfers.size() == count || !connection.status().is_ok());
  };
  int steps = 0;
  for (; steps < 100000 && !(ended(*p.send, sends) && ended(*p.recv, recvs)); ++steps) {
    if (s.pick(0, 40) == 0) lose_channel();
    switch (s.pick(0, 7)) {
      case 0:
        submit(*p.send, sends, false);
        break;
      case 1:
        submit(*p.recv, recvs, true);
        break;
      case 2:
        p.clock.advance(std::chrono::milliseconds(s.pick(0, 3)));
        break;
      case 3:
      case 4:
        p.send->progress();
        break;
      default:
        p.recv->progress();
        break;
    }
    ASSERT_LE(p.send->in_flight(), options.send.limits.window * options.channels) << "seed " << seed;
    ASSERT_LE(p.recv->in_flight(), options.recv.limits.window * options.channels) << "seed " << seed;
    poll_all(p, *p.recv, recvs, true, seed);
    poll_all(p, *p.send, sends, false, seed);
    if (::testing::Test::HasFatalFailure()) return;
  }
  poll_all(p, *p.recv, recvs, true, seed);
  poll_all(p, *p.send, sends, false, seed);
  ASSERT_TRUE(ended(*p.send, sends) && ended(*p.recv, recvs)) << "not ended, seed " << seed;
  ASSERT_EQ(p.fake.misuse(), std::vector<std::string>()) << "seed " << seed;
  ASSERT_EQ(p.unpacker.in_flight(), 0u) << "seed " << seed;
  const std::vector<size_t>& batches = p.unpacker.batches();
  tried.batch += std::any_of(batches.begin(), batches.end(), [](size_t blocks) { return blocks > 1; }) ? 1 : 0;
  tried.refusal += p.unpacker.refused() > 0 ? 1 : 0;
  if (breaks) return;
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(sends[i].end, TransferState::kDone) << p.send->status().to_string() << ", seed " << seed;
    ASSERT_EQ(recvs[i].end, TransferState::kDone) << p.recv->status().to_string() << ", seed " << seed;
    // Guard: the rest of the transfer's place is unchanged.
    const auto rest = p.received(i * kSlotBytes + sizes[i], kSlotBytes - sizes[i]);
    ASSERT_TRUE(testing::all_are(rest, PipelinePair::kUntouched)) << "seed " << seed;
  }
  // Some chunks of a lost channel were not delivered and are not returned.
  ASSERT_EQ(p.fake.calls(Call::kConsumed), chunks) << "each chunk is given back exactly once, seed " << seed;
  if (fate == Fate::kLosesChannels) return;
  ASSERT_EQ(p.fake.free_pages(), options.fake.page_count) << "seed " << seed;
}

void expect_enough(const Tried& tried, uint64_t schedules) {
  EXPECT_GT(tried.batch, schedules / 8);
  EXPECT_GT(tried.refusal, schedules / 20);
}

// Several cases of each kind, so that ctest runs them in parallel; 20,000 schedules in all. A case that is repeated in its
// process (docs/testing.md) continues with new ones.
constexpr uint64_t kCases = 2;
constexpr uint64_t kSchedulesPerCase = 3400;

class PipelineSchedules : public ::testing::TestWithParam<uint64_t> {
 protected:
  Tried run(Fate fate) {
    testing::allow_log("channel gives up");
    testing::allow_log("connection goes on over");
    static std::map<std::pair<Fate, uint64_t>, uint64_t> rounds;
    const uint64_t round = rounds[{fate, GetParam()}]++;
    const uint64_t before = (round * kCases + GetParam()) * kSchedulesPerCase;
    Tried tried;
    for (uint64_t i = 0; i < kSchedulesPerCase && !HasFatalFailure(); ++i) run_schedule(before + i + 1, fate, tried);
    expect_enough(tried, kSchedulesPerCase);
    return tried;
  }
};

TEST_P(PipelineSchedules, DataIsExactAndRequestsAreUsedByTheBook) {
  run(Fate::kNone);
}

TEST_P(PipelineSchedules, ABreakAnywhereEndsBothSides) {
  run(Fate::kBreaks);
}

TEST_P(PipelineSchedules, WhatALostChannelDidNotDeliverGoesOverTheOthers) {
  EXPECT_GT(run(Fate::kLosesChannels).loss, kSchedulesPerCase / 4);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PipelineSchedules, ::testing::Range(uint64_t{0}, kCases));

}  // namespace
}  // namespace tcpx
