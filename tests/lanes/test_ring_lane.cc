// Two lanes over one ring: what one end gives comes out at the other, whatever its ranges and wherever it lies, by threads of
// the copier, by a GPU and without; a lane that has failed ends when nothing is copied any more.
#include "lanes/ring/ring_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "tests/lanes/parts.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using Bytes = std::vector<std::byte>;

struct Setup {
  size_t piece;
  MemoryType from, to;  // of a GPU: the host cannot touch it
};
void PrintTo(const Setup& setup, std::ostream* out) {
  const auto name = [](MemoryType type) { return type == MemoryType::kHost ? "Host" : "Gpu"; };
  *out << name(setup.from) << "To" << name(setup.to) << "In" << (setup.piece >> 10) << "KiB";
}

class RingLanes : public ::testing::TestWithParam<Setup> {
 protected:
  static constexpr size_t kMemory = size_t{5} << 20;

  /// Memory of one end.
  struct Memory {
    Memory(HiddenMemoryOps& ops, MemoryType kind) : type(kind), host(kind == MemoryType::kHost ? kMemory : 0) {
      if (kind == MemoryType::kCuda) gpu = ops.allocate_device(0, kMemory).value();
      data = kind == MemoryType::kHost ? host.data() : gpu.device();
      bytes = {ops.open(data), kMemory};
    }
    const MemoryType type;
    Bytes host;
    MemoryBuffer gpu;
    std::byte* data = nullptr;
    std::span<std::byte> bytes;  ///< for the test
  };

  std::vector<HeldRange> ranges(MemoryId id, const Memory& memory, const Parts& parts) {
    return hold(registry_, id, memory.data, parts);
  }
  static Bytes contents(const Memory& memory, const Parts& parts) {
    Bytes all;
    for (const auto& [offset, bytes] : parts) {
      const auto part = memory.bytes.subspan(offset, bytes);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  void fill(Memory& memory) {
    for (size_t at = 0; at + sizeof(uint64_t) <= memory.bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = random_();
      std::memcpy(memory.bytes.data() + at, &word, sizeof word);
    }
  }
  /// An end for memory of its kind, as it is when the first transfer has been agreed on.
  std::unique_ptr<RingLane> end(bool sends, HostCopier& copier, SegmentCopier& gpu_copier, const Memory& memory, MemoryId id) {
    auto lane = make_lane(sends, copier, gpu_copier);
    const auto first = ranges(id, memory, {{0, 1}});
    EXPECT_TRUE(wait_until([&] { return lane->is_ready(first); }));
    EXPECT_TRUE(lane->take(first, {}));
    return lane;
  }
  std::unique_ptr<RingLane> make_lane(bool sends, HostCopier& copier, SegmentCopier& gpu_copier) {
    const PullParts parts{.memory = memory_, .gpu_copier = gpu_copier, .host_copier = copier, .unmapper = unmapper_};
    return std::make_unique<RingLane>(*ring_, LaneMaking{host_, parts, stream_, {}}, sends, GetParam().piece);
  }
  static void push(RingLane& lane, std::unique_ptr<Job> job) { lane.push(std::move(job), {}, {}); }
  void step() {
    now_ += std::chrono::microseconds(10);
    (void)sender_->progress(now_);
    (void)receiver_->progress(now_);
  }

  TimePoint now_{};
  std::mt19937_64 random_{5};
  MemoryRegistry registry_{1};
  HiddenMemoryOps memory_;
  HostPeer host_;
  ControlStream stream_;
  Unmapper unmapper_{std::shared_ptr<MemoryOps>(std::shared_ptr<void>(), &memory_), 0, {}};
  Memory from_{memory_, GetParam().from}, to_{memory_, GetParam().to};
  const MemoryId from_id_ = registry_.add(from_.data, kMemory, from_.type).value();
  const MemoryId to_id_ = registry_.add(to_.data, kMemory, to_.type).value();
  std::unique_ptr<BulkRing> ring_ = std::make_unique<BulkRing>();
  HostCopier here_{2}, there_{2};
  std::unique_ptr<SegmentCopier> gpu_here_ = memory_.make_segment_copier(0).value(),
                                 gpu_there_ = memory_.make_segment_copier(0).value();
  std::unique_ptr<RingLane> sender_ = end(true, here_, *gpu_here_, from_, from_id_),
                            receiver_ = end(false, there_, *gpu_there_, to_, to_id_);
};
class RingLanesOfGpus : public RingLanes {};
class RingLanesAtOnce : public RingLanes {};

constexpr MemoryType kHost = MemoryType::kHost, kGpu = MemoryType::kCuda;
const Setup kOfHosts[] = {{RingLane::kShortPiece, kHost, kHost}, {RingLane::kLongPiece, kHost, kHost}};
const Setup kOfGpus[] = {
    {RingLane::kShortPiece, kGpu, kHost}, {RingLane::kLongPiece, kHost, kGpu}, {RingLane::kLongPiece, kGpu, kGpu}};
const auto kName = [](const auto& setup) { return ::testing::PrintToString(setup.param); };
INSTANTIATE_TEST_SUITE_P(OfHosts, RingLanes, ::testing::ValuesIn(kOfHosts), kName);
INSTANTIATE_TEST_SUITE_P(OfGpus, RingLanes, ::testing::ValuesIn(kOfGpus), kName);
INSTANTIATE_TEST_SUITE_P(, RingLanesAtOnce, ::testing::Values(kOfHosts[0]), kName);
INSTANTIATE_TEST_SUITE_P(, RingLanesOfGpus, ::testing::ValuesIn(kOfGpus), kName);

TEST_P(RingLanes, AllOfAnyRangesArrives) {
  for (uint64_t round = 0; round < 8; ++round) {
    const size_t bytes = 1 + random_() % kMemory;
    const auto out = random_parts(bytes, round % 2 == 0 ? 300'000 : 5'000, random_),
               in = random_parts(bytes, round % 3 == 0 ? 3'000'000 : 9'000, random_);
    fill(from_);
    fill(to_);
    push(*sender_, job_on(ranges(from_id_, from_, out), round));
    push(*receiver_, job_on(ranges(to_id_, to_, in), round));
    ASSERT_TRUE(wait_until([&] {
      step();
      return sender_->ended() != nullptr && receiver_->ended() != nullptr;
    }));
    for (RingLane* lane : {sender_.get(), receiver_.get()}) {
      EXPECT_TRUE(lane->ended()->status.is_ok());
      EXPECT_EQ(lane->ended()->number, round);
      lane->drop_ended();
      EXPECT_TRUE(lane->idle());
    }
    ASSERT_TRUE(contents(from_, out) == contents(to_, in)) << "round " << round << ", " << bytes << " bytes";
  }
}

TEST_P(RingLanes, SeveralAtOnceKeepTheirOrder) {
  constexpr size_t kCount = 8, kEach = kMemory / kCount;
  fill(from_);
  for (size_t i = 0; i < kCount; ++i) {
    push(*sender_, job_on(ranges(from_id_, from_, {{i * kEach, kEach}}), i));
    push(*receiver_, job_on(ranges(to_id_, to_, {{(kCount - 1 - i) * kEach, kEach}}), i));
  }
  uint64_t ended = 0;
  ASSERT_TRUE(wait_until([&] {
    step();
    if (sender_->ended() != nullptr) sender_->drop_ended();
    if (receiver_->ended() == nullptr) return false;
    EXPECT_EQ(receiver_->ended()->number, ended);
    receiver_->drop_ended();
    return ++ended == kCount;
  }));
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(contents(from_, {{i * kEach, kEach}}) == contents(to_, {{(kCount - 1 - i) * kEach, kEach}})) << i;
  }
}

TEST_P(RingLanes, AfterAFailureNothingIsTouched) {
  fill(from_);
  push(*sender_, job_on(ranges(from_id_, from_, {{0, kMemory}}), 1));
  push(*receiver_, job_on(ranges(to_id_, to_, {{0, kMemory}}), 1));  // more than the ring has: it cannot be over
  push(*receiver_, job_on(ranges(to_id_, to_, {{0, 1}}), 2));
  ASSERT_TRUE(wait_until([&] {
    step();
    return ring_->read > 0;
  }));
  const Status why(Code::kTimeout, "test", "given up");
  receiver_->fail(why);
  ASSERT_TRUE(wait_until([&] {
    step();
    return receiver_->ended() != nullptr;
  }));
  const Bytes before = contents(to_, {{0, kMemory}});
  size_t ended = 0;
  for (; receiver_->ended() != nullptr; receiver_->drop_ended(), ++ended)
    EXPECT_EQ(receiver_->ended()->status.code(), Code::kTimeout);
  EXPECT_EQ(ended, 2u);
  for (int i = 0; i < 20; ++i) step();
  EXPECT_TRUE(before == contents(to_, {{0, kMemory}}));
  EXPECT_TRUE(receiver_->idle());
  EXPECT_FALSE(sender_->idle()) << "nobody takes the rest";
  sender_->fail(why);
  EXPECT_TRUE(wait_until([&] {
    step();
    return sender_->ended() != nullptr;
  }));
}

// Other links wait while short pieces are copied within a turn.
TEST_P(RingLanesAtOnce, OneTurnIsShort) {
  push(*sender_, job_on(ranges(from_id_, from_, {{0, kMemory}}), 1));
  push(*receiver_, job_on(ranges(to_id_, to_, {{0, kMemory}}), 1));
  while (ring_->written < BulkRing::kBytes) {
    const uint64_t before = ring_->written;
    ASSERT_TRUE(sender_->progress(now_));
    EXPECT_LE(ring_->written - before, BulkRing::kBytes / 8);
  }
  while (ring_->read < BulkRing::kBytes) {
    const uint64_t before = ring_->read;
    ASSERT_TRUE(receiver_->progress(now_));
    EXPECT_LE(ring_->read - before, BulkRing::kBytes / 8);
  }
  const Status why(Code::kTimeout, "test", "given up");
  sender_->fail(why);
  receiver_->fail(why);
}

// A peer that was stopped is not looked at all the time, and is not forgotten.
TEST_P(RingLanes, AnEndThatWaitsForLongRests) {
  fill(from_);
  EXPECT_TRUE(sender_->rests(now_));
  push(*sender_, job_on(ranges(from_id_, from_, {{0, kMemory}}), 1));
  EXPECT_FALSE(sender_->rests(now_));
  ASSERT_TRUE(wait_until([&] {
    (void)sender_->progress(now_ += std::chrono::milliseconds(1));
    return sender_->rests(now_);
  })) << "the ring is full";
  EXPECT_EQ(ring_->written, BulkRing::kBytes);
  EXPECT_FALSE(sender_->idle());
  push(*receiver_, job_on(ranges(to_id_, to_, {{0, kMemory}}), 1));
  EXPECT_FALSE(receiver_->rests(now_));
  ASSERT_TRUE(wait_until([&] {
    (void)receiver_->progress(now_);
    return ring_->read > 0;
  }));
  (void)sender_->progress(now_);
  EXPECT_FALSE(sender_->rests(now_));
  ASSERT_TRUE(wait_until([&] {
    step();
    return receiver_->ended() != nullptr;
  }));
  EXPECT_TRUE(std::ranges::equal(from_.bytes, to_.bytes));
}

TEST_P(RingLanes, WhatCannotComeThisWay) {
  const auto to = ranges(to_id_, to_, {{0, 9}});
  std::vector<std::byte> words;
  EXPECT_TRUE(receiver_->take(to, {}));
  EXPECT_FALSE(receiver_->take({}, {}));
  EXPECT_TRUE(sender_->offer(ranges(from_id_, from_, {{0, 9}}), words));
  EXPECT_TRUE(words.empty());
  EXPECT_FALSE(sender_->offer({}, words));
  receiver_->fail(Status(Code::kTimeout, "test", "given up"));
  EXPECT_FALSE(receiver_->take(to, {}));
}

TEST_P(RingLanes, ARingThatCannotBePinnedIsForHostMemoryAlone) {
  memory_.forbid_mapping();
  const auto out = make_lane(true, here_, *gpu_here_), in = make_lane(false, here_, *gpu_here_);
  const auto from = ranges(from_id_, from_, {{0, 9}}), to = ranges(to_id_, to_, {{0, 9}});
  EXPECT_TRUE(wait_until([&] { return out->is_ready(from) && in->is_ready(to); }));
  std::vector<std::byte> words;
  EXPECT_EQ(out->offer(from, words), GetParam().from == kHost);
  EXPECT_EQ(in->take(to, {}), GetParam().to == kHost);
}

// By the end with the GPU, or by both; once.
TEST_P(RingLanesOfGpus, TheRingIsPinnedUntilTheEnd) {
  const size_t ends = (GetParam().from == kGpu ? 1 : 0) + (GetParam().to == kGpu ? 1 : 0);
  EXPECT_TRUE(receiver_->take(ranges(to_id_, to_, {{0, 9}}), {})) << "again";
  EXPECT_EQ(memory_.mapped_bytes(), ends * BulkRing::kBytes);
  sender_->close();
  receiver_.reset();
  EXPECT_EQ(memory_.mapped_bytes(), 0u);
}

// The copier is for all links.
TEST_P(RingLanesOfGpus, ManyShortOnesDoNotFillTheCopier) {
  constexpr uint64_t kCount = 100;
  memory_.let_copy_at_once(kCount);
  memory_.hold_copies();
  fill(from_);
  uint64_t ended = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    push(*sender_, job_on(ranges(from_id_, from_, {{i * 20, 20}}), i));
    push(*receiver_, job_on(ranges(to_id_, to_, {{i * 30, 20}}), i));
  }
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(memory_.most_at_once(), RingLane::kMaxGpuPieces);
  memory_.release_copies();
  ASSERT_TRUE(wait_until([&] {
    step();
    if (sender_->ended() != nullptr) sender_->drop_ended();
    for (; receiver_->ended() != nullptr; receiver_->drop_ended()) ++ended;
    return ended == kCount;
  }));
  for (uint64_t i = 0; i < kCount; ++i) EXPECT_TRUE(contents(from_, {{i * 20, 20}}) == contents(to_, {{i * 30, 20}})) << i;
}

TEST_P(RingLanesOfGpus, AFailureOfTheGpuEndsIt) {
  RingLane& of_gpu = GetParam().from == kGpu ? *sender_ : *receiver_;
  push(*sender_, job_on(ranges(from_id_, from_, {{0, kMemory}}), 1));
  push(*receiver_, job_on(ranges(to_id_, to_, {{0, kMemory}}), 1));
  step();
  memory_.break_copies();
  ASSERT_TRUE(wait_until([&] {
    step();
    return of_gpu.ended() != nullptr;
  }));
  EXPECT_EQ(of_gpu.ended()->status.code(), Code::kCuda);
  sender_->fail(of_gpu.status());
  receiver_->fail(of_gpu.status());
}

}  // namespace
}  // namespace tcpx::testing
