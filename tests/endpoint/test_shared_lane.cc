// Two shared lanes over one ring: what one end gives comes out at the other, whatever its ranges, by threads of the copier and
// without; a lane that has failed ends when nothing is copied any more.
#include "endpoint/shared_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using Bytes = std::vector<std::byte>;

class SharedLanes : public ::testing::TestWithParam<size_t> {
 protected:
  static constexpr size_t kMemory = size_t{5} << 20;

  std::vector<HeldRange> ranges(MemoryId id, Bytes& memory, const std::vector<std::pair<size_t, size_t>>& parts) {
    std::vector<HeldRange> held;
    for (const auto& [offset, bytes] : parts)
      held.push_back({registry_.use(id, memory.data() + offset, bytes).value(), memory.data() + offset, bytes});
    return held;
  }
  /// Parts of the memory that do not overlap, in no order, so many bytes together.
  std::vector<std::pair<size_t, size_t>> random_parts(size_t bytes, size_t longest) {
    std::vector<std::pair<size_t, size_t>> parts;
    for (size_t at = 0; at < bytes;) {
      const size_t part = std::min(bytes - at, 1 + random_() % longest);
      parts.emplace_back(at, part);
      at += part;
    }
    std::shuffle(parts.begin(), parts.end(), random_);
    return parts;
  }
  static std::unique_ptr<Job> job(std::vector<HeldRange> held, uint64_t number) {
    auto job = std::make_unique<Job>();
    job->number = number;
    for (const HeldRange& range : held) job->bytes += range.bytes;
    job->held = std::move(held);
    return job;
  }
  static Bytes contents(const Bytes& memory, const std::vector<std::pair<size_t, size_t>>& parts) {
    Bytes all;
    for (const auto& [offset, bytes] : parts)
      all.insert(all.end(), memory.begin() + static_cast<ptrdiff_t>(offset),
                 memory.begin() + static_cast<ptrdiff_t>(offset + bytes));
    return all;
  }
  void fill(Bytes& memory) {
    for (size_t at = 0; at + sizeof(uint64_t) <= memory.size(); at += sizeof(uint64_t)) {
      const uint64_t word = random_();
      std::memcpy(memory.data() + at, &word, sizeof word);
    }
  }
  void step() {
    now_ += std::chrono::microseconds(10);
    (void)sender_.progress(now_);
    (void)receiver_.progress(now_);
  }

  TimePoint now_{};
  std::mt19937_64 random_{5};
  MemoryRegistry registry_{1};
  Bytes from_ = Bytes(kMemory), to_ = Bytes(kMemory);
  const MemoryId from_id_ = registry_.add(from_.data(), kMemory, MemoryType::kHost).value();
  const MemoryId to_id_ = registry_.add(to_.data(), kMemory, MemoryType::kHost).value();
  std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  std::unique_ptr<BulkRing> ring_ = std::make_unique<BulkRing>();
  HostCopier here_{2}, there_{2};
  SharedLane sender_{ring_.get(), here_, *memory_, true, GetParam()}, receiver_{ring_.get(), there_, *memory_, false, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(, SharedLanes, ::testing::Values(SharedLane::kShortPiece, SharedLane::kLongPiece),
                         [](const auto& piece) { return std::to_string(piece.param >> 10) + "KiB"; });

TEST_P(SharedLanes, AllOfAnyRangesArrives) {
  for (uint64_t round = 0; round < 8; ++round) {
    const size_t bytes = 1 + random_() % kMemory;
    const auto out = random_parts(bytes, round % 2 == 0 ? 300'000 : 5'000),
               in = random_parts(bytes, round % 3 == 0 ? 3'000'000 : 9'000);
    fill(from_);
    fill(to_);
    sender_.push(job(ranges(from_id_, from_, out), round));
    receiver_.push(job(ranges(to_id_, to_, in), round));
    ASSERT_TRUE(wait_until([&] {
      step();
      return sender_.ended() != nullptr && receiver_.ended() != nullptr;
    }));
    for (SharedLane* lane : {&sender_, &receiver_}) {
      EXPECT_TRUE(lane->ended()->status.is_ok());
      EXPECT_EQ(lane->ended()->number, round);
      lane->drop_ended();
      EXPECT_TRUE(lane->idle());
    }
    ASSERT_TRUE(contents(from_, out) == contents(to_, in)) << "round " << round << ", " << bytes << " bytes";
  }
}

TEST_P(SharedLanes, SeveralAtOnceKeepTheirOrder) {
  constexpr size_t kCount = 8, kEach = kMemory / kCount;
  fill(from_);
  for (size_t i = 0; i < kCount; ++i) {
    sender_.push(job(ranges(from_id_, from_, {{i * kEach, kEach}}), i));
    receiver_.push(job(ranges(to_id_, to_, {{(kCount - 1 - i) * kEach, kEach}}), i));
  }
  uint64_t ended = 0;
  ASSERT_TRUE(wait_until([&] {
    step();
    if (sender_.ended() != nullptr) sender_.drop_ended();
    if (receiver_.ended() == nullptr) return false;
    EXPECT_EQ(receiver_.ended()->number, ended);
    receiver_.drop_ended();
    return ++ended == kCount;
  }));
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(contents(from_, {{i * kEach, kEach}}) == contents(to_, {{(kCount - 1 - i) * kEach, kEach}})) << i;
  }
}

TEST_P(SharedLanes, AfterAFailureNothingIsTouched) {
  fill(from_);
  sender_.push(job(ranges(from_id_, from_, {{0, kMemory}}), 1));
  receiver_.push(job(ranges(to_id_, to_, {{0, kMemory}}), 1));  // more than the ring has: it cannot be over
  receiver_.push(job(ranges(to_id_, to_, {{0, 1}}), 2));
  ASSERT_TRUE(wait_until([&] {
    step();
    return ring_->read > 0;
  }));
  const Status why(Code::kTimeout, "test", "given up");
  receiver_.fail(why);
  ASSERT_TRUE(wait_until([&] {
    step();
    return receiver_.ended() != nullptr;
  }));
  const Bytes before = to_;
  size_t ended = 0;
  for (; receiver_.ended() != nullptr; receiver_.drop_ended(), ++ended)
    EXPECT_EQ(receiver_.ended()->status.code(), Code::kTimeout);
  EXPECT_EQ(ended, 2u);
  for (int i = 0; i < 20; ++i) step();
  EXPECT_TRUE(before == to_);
  EXPECT_TRUE(receiver_.idle());
  EXPECT_FALSE(sender_.idle()) << "nobody takes the rest";
  sender_.fail(why);
  EXPECT_TRUE(wait_until([&] {
    step();
    return sender_.ended() != nullptr;
  }));
}

// A peer that was stopped is not looked at all the time, and is not forgotten.
TEST_P(SharedLanes, AnEndThatWaitsForLongRests) {
  fill(from_);
  EXPECT_TRUE(sender_.rests(now_));
  sender_.push(job(ranges(from_id_, from_, {{0, kMemory}}), 1));
  EXPECT_FALSE(sender_.rests(now_));
  ASSERT_TRUE(wait_until([&] {
    (void)sender_.progress(now_ += std::chrono::milliseconds(1));
    return sender_.rests(now_);
  })) << "the ring is full";
  EXPECT_EQ(ring_->written, BulkRing::kBytes);
  EXPECT_FALSE(sender_.idle());
  receiver_.push(job(ranges(to_id_, to_, {{0, kMemory}}), 1));
  EXPECT_FALSE(receiver_.rests(now_));
  ASSERT_TRUE(wait_until([&] {
    (void)receiver_.progress(now_);
    return ring_->read > 0;
  }));
  (void)sender_.progress(now_);
  EXPECT_FALSE(sender_.rests(now_));
  ASSERT_TRUE(wait_until([&] {
    step();
    return receiver_.ended() != nullptr;
  }));
  EXPECT_TRUE(from_ == to_);
}

TEST_P(SharedLanes, OnlyWhatIsHiddenComesThisWay) {
  const std::vector<WireSource> hidden = {{.share = kHiddenMemory, .address = 0, .bytes = 9}},
                                read = {{.share = kHostMemory, .address = 1, .bytes = 9}};
  const auto to = ranges(to_id_, to_, {{0, 9}});
  EXPECT_TRUE(receiver_.takes(to, hidden));
  EXPECT_FALSE(receiver_.takes(to, read));
  EXPECT_FALSE(receiver_.takes(to, std::vector<WireSource>()));
  EXPECT_FALSE(receiver_.takes(to, std::vector<WireSource>{hidden[0], hidden[0]}));
  EXPECT_FALSE(receiver_.takes({}, hidden));
  EXPECT_FALSE(SharedLane(nullptr, here_, *memory_, false).takes(to, hidden)) << "no ring";
  receiver_.fail(Status(Code::kTimeout, "test", "given up"));
  EXPECT_FALSE(receiver_.takes(to, hidden));
}

}  // namespace
}  // namespace tcpx::testing
