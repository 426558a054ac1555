#include "tests/netns/lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tcpx::netns {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr TimePoint kBegan{std::chrono::hours(1)};

/// A lane that gets packets which carry their number.
class LaneTest : public ::testing::Test {
 protected:
  void make(const LaneOptions& options) { lane_.emplace(options, kBegan, options.seed); }
  void put(int number, Duration at, uint64_t bytes = 1000, uint64_t longest = 0) {
    const std::byte frame[] = {static_cast<std::byte>(number)};
    lane_->put(frame, bytes, longest > 0 ? longest : bytes, kBegan + at);
  }
  /// "1@5000 2@5000": the numbers of the packets that arrive, and after how many us.
  std::string all() {
    std::string text;
    while (const auto at = lane_->next()) {
      EXPECT_EQ(nullptr, lane_->front(*at - Duration(1)));
      text += (text.empty() ? "" : " ") + std::to_string(std::to_integer<int>(lane_->front(*at)->front())) + "@" +
              std::to_string(std::chrono::duration_cast<microseconds>(*at - kBegan).count());
      lane_->pop();
    }
    return text;
  }
  const Lane::Counts& counts() const { return lane_->counts(); }

  std::optional<Lane> lane_;
};

TEST_F(LaneTest, EachPacketArrivesADelayLater) {
  make({.delay_us = 5000});
  put(1, {});
  put(2, milliseconds(1));
  EXPECT_EQ("1@5000 2@6000", all());
  EXPECT_EQ(2U, counts().packets);
  EXPECT_EQ(2000U, counts().bytes);
}

TEST_F(LaneTest, PacketsLeaveOneAfterTheOther) {
  make({.delay_us = 100, .mbit = 8});  // 1000 bytes in 1 ms
  for (const int i : {1, 2, 3}) put(i, {});
  put(4, milliseconds(10));
  EXPECT_EQ("1@1100 2@2100 3@3100 4@11100", all());
}

TEST_F(LaneTest, TheQueueIsBounded) {
  make({.mbit = 8, .queue_bytes = 2500});
  for (const int i : {1, 2, 3}) put(i, {});
  EXPECT_EQ("1@1000 2@2000", all());
  EXPECT_EQ(1U, counts().dropped);
}

TEST_F(LaneTest, WhatIsOnTheWireFillsNoQueue) {
  make({.delay_us = 10'000, .mbit = 8, .queue_bytes = 1000});
  for (int i = 0; i < 11; ++i) put(i, milliseconds(i));
  EXPECT_EQ(0U, counts().dropped);
  put(11, milliseconds(10));
  EXPECT_EQ(1U, counts().dropped);
}

TEST_F(LaneTest, WithoutARateItHoldsABoundedNumberOfBytes) {
  make({.delay_us = 1'000'000});
  for (int i = 0; i < 3; ++i) put(i, {}, Lane::kQueueWithoutRate / 2);
  EXPECT_EQ(1U, counts().dropped);
}

TEST_F(LaneTest, LossIsByChanceAndTheSameForASeed) {
  const auto lost = [this](uint64_t seed) {
    make({.loss = 0.1, .seed = seed});
    for (int i = 0; i < 1000; ++i) put(i, microseconds(i));
    EXPECT_EQ(1000U, counts().lost + static_cast<uint64_t>(std::ranges::count(all(), '@')));
    return counts().lost;
  };
  const uint64_t once = lost(7);
  EXPECT_GT(once, 50U);
  EXPECT_LT(once, 200U);
  EXPECT_EQ(once, lost(7));
}

TEST_F(LaneTest, JitterOvertakesNobody) {
  make({.delay_us = 100, .jitter_us = 1000});
  for (int i = 0; i < 100; ++i) put(i, microseconds(i));
  int last = -1;
  TimePoint at = kBegan;
  while (const auto next = lane_->next()) {
    const int number = std::to_integer<int>(lane_->front(*next)->front());
    EXPECT_EQ(last + 1, number);
    EXPECT_GE(*next, at);
    last = number, at = *next;
    lane_->pop();
  }
  EXPECT_EQ(99, last);
  EXPECT_GT(at, kBegan + microseconds(300));
}

TEST_F(LaneTest, AReorderedPacketIsOvertaken) {
  make({.delay_us = 4000, .reorder = 0.5, .seed = 3});
  for (int i = 1; i < 9; ++i) put(i, microseconds(i));
  const uint64_t late = counts().late;
  EXPECT_GT(late, 0U);
  EXPECT_LT(late, 8U);
  std::vector<int> numbers;
  TimePoint before = kBegan;
  while (const auto at = lane_->next()) {
    EXPECT_LE(before, *at);
    before = *at;
    numbers.push_back(std::to_integer<int>(lane_->front(*at)->front()));
    lane_->pop();
  }
  EXPECT_EQ(8U, numbers.size());
  EXPECT_FALSE(std::ranges::is_sorted(numbers));
  EXPECT_GT(before, kBegan + microseconds(5000));
}

TEST_F(LaneTest, ADuplicateArrivesTwice) {
  make({.delay_us = 10, .duplicate = 1});
  put(1, {});
  EXPECT_EQ("1@10 1@10", all());
  EXPECT_EQ(1U, counts().twice);
}

TEST_F(LaneTest, PacketsLongerThanTheHoleVanish) {
  make({.mtu_hole = 1400});
  put(1, {}, 1400);
  put(2, {}, 1401);
  put(3, {}, 64000, 1400);
  EXPECT_EQ("1@0 3@0", all());
  EXPECT_EQ(1U, counts().vanished);
}

TEST_F(LaneTest, NothingPassesDuringTheCut) {
  make({.cut_after_ms = 10, .cut_ms = 5});
  put(1, milliseconds(9));
  put(2, milliseconds(10));
  put(3, milliseconds(14));
  put(4, milliseconds(15));
  EXPECT_EQ("1@9000 4@15000", all());
  EXPECT_EQ(2U, counts().cut);
}

TEST_F(LaneTest, PacketsOvertakeThoseOfALongerWayBefore) {
  make({.delay_us = 5000, .reroute_after_ms = 10, .reroute_delay_us = 1000});
  put(1, milliseconds(8));
  put(2, milliseconds(9));
  put(3, milliseconds(10));
  put(4, milliseconds(15));
  EXPECT_EQ("3@11000 1@13000 2@14000 4@16000", all());
  EXPECT_EQ(2U, counts().rerouted);
}

}  // namespace
}  // namespace tcpx::netns
