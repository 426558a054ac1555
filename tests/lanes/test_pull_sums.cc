// Checksums of GPU memory that the peer copies by itself: both ends compute theirs beside the copy.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>

#include "lanes/pull/offered_sums.h"
#include "lanes/pull/sources.h"
#include "tests/lanes/lane_test.h"

namespace tcpx::testing {
namespace {

class PullGpuSums : public LaneTest {
 protected:
  static constexpr Setting kSetting{.name = "Pull", .on_host = true, .reads = true, .way = Way::kPull, .sums = true, .gpu = true};
  /// An offer that is not taken.
  static void offer(TwoEnds& ends, uint64_t number) {
    const auto job = ends.job(ends.sender, {{0, 1000}}, number, false);
    ASSERT_TRUE(ends.offer_of(*job).is_ok());
    begin_sums(ends);
  }
  /// The sender's, once the offers have left.
  static void begin_sums(TwoEnds& ends) {
    (void)ends.sender.stream.flush();
    (void)ends.sender.lanes->all()[2]->progress(TimePoint{});
  }
};

// No message of the sender comes between the end of the copy and that of the job.
TEST_F(PullGpuSums, ThatTheSenderHasToldEndTheJobWithTheCopy) {
  TwoEnds ends(kSetting);
  fill(ends.sender);
  ASSERT_TRUE(ends.begin({{0, 1000}, {2000, 500}}, {{7, 1500}}, 1).is_ok());
  ASSERT_TRUE(wait_until([&] {  // the receiver alone, after what the sender has said until then
    (void)ends.sender.lanes->all()[2]->progress(TimePoint{});
    (void)ends.sender.stream.flush();
    (void)ends.receiver.stream.receive(ends.receiver, true);
    for (Lane* lane : ends.receiver.lanes->all()) {
      (void)lane->progress(TimePoint{});
      (void)ends.receiver.lanes->compare_sums(*lane);
      if (const Job* job = ends.receiver.lanes->ended(*lane)) ends.receiver.ended.push_back({job->number, true, job->status});
    }
    return !ends.receiver.ended.empty();
  }));
  EXPECT_TRUE(ends.receiver.ended[0].status.is_ok());
  EXPECT_TRUE(ends.sender.gone.empty()) << "the sender had not heard of the end";
}

TEST_F(PullGpuSums, OfAnOfferThatNobodyTakesHoldItsMemoryUntilTheGpuHasReadIt) {
  TwoEnds ends(kSetting);
  Lane& lane = *ends.sender.lanes->all()[2];
  ends.gpu_copier().hold_sums();
  offer(ends, 1);
  EXPECT_EQ(ends.gpu_copier().sums(), 1u);
  for (int i = 0; i < 5; ++i) ends.step();
  EXPECT_FALSE(lane.idle() || lane.is_told());
  EXPECT_TRUE(ends.is_held(ends.sender));
  ends.gpu_copier().release();
  ends.step();
  EXPECT_TRUE(lane.idle() && lane.is_told());
  EXPECT_FALSE(ends.is_held(ends.sender));
}

// The ranges of an operation of this end hold nothing: the operation does, and may end before the GPU has read them.
TEST_F(PullGpuSums, HoldWhatTheOperationHeldAndAreNotBegunOfMemoryThatNobodyHolds) {
  TwoEnds ends(kSetting);
  auto job = ends.job(ends.sender, {{0, 1000}}, 1, false);
  const HeldRange bare(job->ranges[0].region(), job->ranges[0].data, job->ranges[0].bytes);
  std::vector<RegionUse> uses{job->ranges[0].use};
  Lanes& lanes = *ends.sender.lanes;
  ASSERT_TRUE(wait_until([&] { return lanes.is_ready_to_offer(job->ranges, Packing::kWhole); }));
  ends.gpu_copier().hold_sums();
  ASSERT_TRUE(lanes.offer({.operation = 1}, std::span(&bare, 1), bare.bytes).is_ok());
  begin_sums(ends);
  EXPECT_EQ(ends.gpu_copier().sums(), 0u);
  ASSERT_TRUE(lanes.offer({.operation = 2}, std::span(&bare, 1), bare.bytes, true, uses).is_ok());
  begin_sums(ends);
  EXPECT_EQ(ends.gpu_copier().sums(), 1u);
  job.reset();
  uses.clear();
  EXPECT_TRUE(ends.is_held(ends.sender));
  ends.gpu_copier().release();
  ends.step();
  EXPECT_FALSE(ends.is_held(ends.sender));
}

TEST_F(PullGpuSums, OfOffersThatNobodyTakesAreBounded) {
  TwoEnds ends(kSetting);
  ends.gpu_copier().hold_sums();
  for (uint64_t number = 1; number <= OfferedSums::kMost + 5; ++number) offer(ends, number);
  EXPECT_EQ(ends.gpu_copier().sums(), OfferedSums::kMost);
  ends.gpu_copier().release();
  ends.step();
  offer(ends, 1000);
  EXPECT_EQ(ends.gpu_copier().sums(), OfferedSums::kMost + 1) << "the oldest is forgotten";
  for (const uint64_t number : {uint64_t{1001}, uint64_t{1002}}) {
    fill(ends.sender);
    ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, number).is_ok());
    ASSERT_TRUE(over(ends, number - 1000));
    EXPECT_TRUE(ends.receiver.ended.back().status.is_ok() && ends.sender.ended.back().status.is_ok());
  }
}

TEST_F(PullGpuSums, OfTheSenderThatCameEarlyIsTheOneThatCounts) {
  TwoEnds ends(kSetting);
  fill(ends.sender);
  ends.gpu_copier().hold();
  ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, 1).is_ok());
  begin_sums(ends);
  const uint64_t wrong = 5;
  EXPECT_TRUE(ends.receiver.lanes->on(talk(PullTalk::kSum, 1, std::as_bytes(std::span(&wrong, 1)))).is_ok());
  ASSERT_TRUE(wait_until([&] {  // before the sender's own
    for (Lane* lane : ends.receiver.lanes->all()) (void)lane->progress(TimePoint{});
    return ends.gpu_copier().under_way() == 2;
  }));
  EXPECT_TRUE(ends.receiver.lanes->on(talk(PullTalk::kSumOfRead, 1, std::as_bytes(std::span(&wrong, 1)))).is_ok())
      << "of no pull";
  EXPECT_EQ(ends.receiver.lanes->on(talk(PullTalk::kSum, 1, std::as_bytes(std::span(&wrong, 1)).first(7))).code(),
            Code::kProtocol);
  ends.gpu_copier().release();
  Lane& lane = *ends.receiver.lanes->all()[3];
  (void)lane.progress(TimePoint{});
  (void)ends.receiver.lanes->compare_sums(lane);
  ASSERT_NE(ends.receiver.lanes->ended(lane), nullptr);
  EXPECT_EQ(ends.receiver.lanes->ended(lane)->status.code(), Code::kCorrupt);
}

}  // namespace
}  // namespace tcpx::testing
