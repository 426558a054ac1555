// Ranges of a plan: checked once, joined where they follow each other, and handed out in rounds.
#include "endpoint/planned_ranges.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "endpoint/operation.h"

namespace tcpx {
namespace {

constexpr uint64_t kInstance = 5;

class PlannedRangesTest : public ::testing::Test {
 protected:
  /// `bytes` at `offset` here, to `there` of the slot.
  void add(size_t offset, size_t bytes, uint64_t there) {
    ranges_.push_back({id_, memory_.data() + offset, bytes});
    remote_.push_back({slot_, there});
  }
  std::shared_ptr<const PlannedRanges> plan() { return plan_ranges(registry_, ranges_, remote_, kInstance).value(); }
  Code code_of_plan() { return plan_ranges(registry_, ranges_, remote_, kInstance).status().code(); }
  /// Bytes of each range of each round.
  std::vector<std::vector<uint64_t>> rounds(std::optional<std::span<const uint32_t>> indices = {}) {
    const auto rounds = PlannedRounds::begin(registry_, plan(), indices).value();
    std::vector<std::vector<uint64_t>> all;
    do {
      rounds->next(operation_);
      auto& lengths = all.emplace_back();
      EXPECT_EQ(operation_.ranges.size(), operation_.remote.size());
      uint64_t sum = 0;
      for (size_t i = 0; i < operation_.ranges.size(); ++i) {
        lengths.push_back(operation_.ranges[i].bytes);
        EXPECT_EQ(operation_.remote[i].bytes, operation_.ranges[i].bytes);
        sum += operation_.ranges[i].bytes;
      }
      EXPECT_EQ(operation_.bytes, sum);
    } while (!rounds->done());
    return all;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
  MemoryRegistry registry_{kInstance};
  const MemoryId id_ = registry_.add(memory_.data(), memory_.size(), MemoryType::kHost).value();
  const RemoteSlot slot_ = registry_.advertise(kAnyConnection, id_, memory_.data(), memory_.size()).value();
  std::vector<LocalRange> ranges_;
  std::vector<RemoteRange> remote_;
  Operation operation_;
};

TEST_F(PlannedRangesTest, NeighboursAtBothEndsAreOneRange) {
  add(0, 100, 500);
  add(100, 50, 600);   // goes on at both ends
  add(150, 0, 7);      // of nothing: not there
  add(150, 50, 700);   // at this end alone
  add(1000, 10, 750);  // at the other end alone
  EXPECT_EQ(rounds(), (std::vector<std::vector<uint64_t>>{{150, 50, 10}}));
  Operation direct;
  ASSERT_TRUE(hold_ranges(registry_, ranges_, remote_, direct).is_ok());
  EXPECT_EQ(direct.ranges.size(), 3u);
  EXPECT_EQ(direct.bytes, 210u);
  Operation send;  // whose ends may cut their streams alike
  ASSERT_TRUE(hold_ranges(registry_, ranges_, {}, send).is_ok());
  EXPECT_EQ(send.ranges.size(), 4u);
}

TEST_F(PlannedRangesTest, NeighboursInOtherRegionsOrSlotsStayApart) {
  const MemoryId part = registry_.add(memory_.data() + 100, 100, MemoryType::kHost).value();
  add(0, 100, 0);
  add(100, 100, 100);
  ranges_.back().memory = part;
  add(200, 10, 200);
  add(210, 10, 210);
  remote_.back().slot.id.low ^= 1;
  EXPECT_EQ(rounds(), (std::vector<std::vector<uint64_t>>{{100, 100, 10, 10}}));
}

TEST_F(PlannedRangesTest, ARoundHasWhatAPeerIsToldOfAtOnce) {
  for (size_t i = 0; i < 2 * kMaxWireRanges + 5; ++i) add(2 * i, 1, 2 * i);
  add(900'000, 0, 0);
  const auto all = rounds();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].size(), size_t{kMaxWireRanges});
  EXPECT_EQ(all[1].size(), size_t{kMaxWireRanges});
  EXPECT_EQ(all[2].size(), 5u);
}

TEST_F(PlannedRangesTest, AFullLastRoundIsTheLast) {
  for (size_t i = 0; i < kMaxWireRanges; ++i) add(2 * i, 1, 2 * i);
  add(900'000, 0, 0);
  EXPECT_EQ(rounds().size(), 1u);
}

TEST_F(PlannedRangesTest, IndicesChooseAndOrder) {
  for (size_t i = 0; i < 10; ++i) add(1000 * i, 1 + i, 1000 * i);
  const std::array<uint32_t, 4> indices{7, 2, 2, 0};
  EXPECT_EQ(rounds(indices), (std::vector<std::vector<uint64_t>>{{8, 3, 3, 1}}));
  EXPECT_EQ(rounds(std::span<const uint32_t>()), (std::vector<std::vector<uint64_t>>{{}})) << "none at all is not all";
  const std::array<uint32_t, 2> beyond{1, 10};
  const Status status = PlannedRounds::begin(registry_, plan(), beyond).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.detail(), "index 10 of a plan of 10 ranges (range 1)");
}

TEST_F(PlannedRangesTest, EachRangeIsChecked) {
  add(0, 10, 0);
  ranges_[0].memory = MemoryId{99};
  EXPECT_EQ(code_of_plan(), Code::kNotFound);
  ranges_[0] = {id_, memory_.data() + 1, memory_.size()};
  EXPECT_EQ(code_of_plan(), Code::kInvalidArgument);
  ranges_[0].bytes = 10;
  remote_[0].offset = memory_.size() - 9;
  EXPECT_EQ(code_of_plan(), Code::kInvalidArgument);
  remote_[0] = {};
  EXPECT_EQ(code_of_plan(), Code::kInvalidArgument);
  remote_.clear();
  EXPECT_EQ(code_of_plan(), Code::kInvalidArgument);
  remote_ = {{slot_, 0}, {slot_, 0}};
  const MemoryId device = registry_.add(memory_.data(), 64, MemoryType::kCuda).value();
  ranges_.push_back({device, memory_.data(), 1});
  const Status mixed = plan_ranges(registry_, ranges_, remote_, kInstance).status();
  EXPECT_EQ(mixed.detail(), "host and GPU memory in one transfer");
}

TEST_F(PlannedRangesTest, APlanHoldsNothingAndItsRoundsHoldTheRegions) {
  add(0, 10, 0);
  add(100, 10, 100);
  const auto made = plan();
  {
    const auto rounds = PlannedRounds::begin(registry_, made, {}).value();
    rounds->next(operation_);
    operation_.ranges.clear();
    EXPECT_EQ(registry_.try_remove(id_).status().code(), Code::kExhausted) << "they hold it between rounds too";
    EXPECT_EQ(registry_.remove(id_, Deadline(TimePoint{})).status().code(), Code::kTimeout);
  }
  EXPECT_TRUE(registry_.try_remove(id_)->has_value());
  EXPECT_EQ(PlannedRounds::begin(registry_, made, {}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tcpx
