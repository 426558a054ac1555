// Ranges of a plan: checked once, joined where they follow each other, and handed out in rounds.
#include "endpoint/planned_ranges.h"

#include <gtest/gtest.h>

#include <array>

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
  Result<std::unique_ptr<PlannedRounds>> begin(std::shared_ptr<const PlannedRanges> plan,
                                               std::optional<PlannedRounds::Chosen> chosen = {}) {
    operation_.uses.clear();
    TCPX_RETURN_IF_ERROR(plan->hold(registry_, operation_.uses));
    return PlannedRounds::begin(std::move(plan), operation_.uses, chosen);
  }
  /// Gives `operation` all that was added.
  void give(const std::vector<RemoteRange>& remote, Operation& operation) {
    NamedRanges named(ranges_, remote);
    ASSERT_TRUE(named.check(registry_, false).is_ok());
    operation.uses = named.take_uses();
    named.make_room(ranges_.size(), operation);
    named.give(ranges_.size(), operation.uses, operation);
  }
  Code code_of_plan() { return plan_ranges(registry_, ranges_, remote_, kInstance).status().code(); }
  /// Bytes of each range of each round.
  std::vector<std::vector<uint64_t>> rounds(std::optional<std::span<const uint32_t>> indices = {}) {
    std::optional<PlannedRounds::Chosen> chosen;
    if (indices) chosen = {*indices, {}};
    const auto rounds = begin(plan(), chosen).value();
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
  give(remote_, direct);
  EXPECT_EQ(direct.ranges.size(), 3u);
  EXPECT_EQ(direct.bytes, 210u);
  Operation send;  // whose ends may cut their streams alike
  give({}, send);
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

// Each thing in which the second of two ranges may differ from the first.
TEST_F(PlannedRangesTest, ARangeIsCheckedThoughTheOneBeforeWasGood) {
  using Spoil = void (*)(LocalRange&, RemoteRange&);
  const std::vector<std::pair<Spoil, Code>> spoils = {
      {[](LocalRange&, RemoteRange&) {}, Code::kOk},
      {[](LocalRange& range, RemoteRange&) { range.data = static_cast<std::byte*>(range.data) - 201; }, Code::kInvalidArgument},
      {[](LocalRange& range, RemoteRange&) { range.bytes = SIZE_MAX; }, Code::kInvalidArgument},
      {[](LocalRange& range, RemoteRange&) { range.memory = MemoryId{99}; }, Code::kNotFound},
      {[](LocalRange&, RemoteRange& remote) { remote.offset = (1 << 20) - 9; }, Code::kInvalidArgument},
      {[](LocalRange&, RemoteRange& remote) { remote.offset = UINT64_MAX; }, Code::kInvalidArgument},
      {[](LocalRange&, RemoteRange& remote) { remote.slot.bytes = 300; }, Code::kInvalidArgument},
      {[](LocalRange&, RemoteRange& remote) { remote.slot.magic[3] ^= 1; }, Code::kInvalidArgument},
      {[](LocalRange&, RemoteRange& remote) { remote.slot.id = {}; }, Code::kInvalidArgument},
      {[](LocalRange&, RemoteRange& remote) { ++remote.slot.version; }, Code::kUnsupported},
  };
  add(0, 100, 500);
  add(200, 10, 600);
  const LocalRange range = ranges_.back();
  const RemoteRange remote = remote_.back();
  for (size_t i = 0; i < spoils.size(); ++i) {
    ranges_.back() = range;
    remote_.back() = remote;
    spoils[i].first(ranges_.back(), remote_.back());
    EXPECT_EQ(code_of_plan(), spoils[i].second) << "spoilt in way " << i;
    NamedRanges named(ranges_, remote_);
    EXPECT_EQ(named.check(registry_, false).code(), spoils[i].second) << "spoilt in way " << i;
    EXPECT_EQ(named.bytes(), spoils[i].second == Code::kOk ? 110u : 0u);
  }
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
  const Status status = begin(plan(), PlannedRounds::Chosen{beyond, {}}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.detail(), "index 10 of a plan of 10 ranges (range 1)");
  EXPECT_EQ(begin(plan(), PlannedRounds::Chosen{indices, indices}).status().code(), Code::kInvalidArgument)
      << "these have their places already";
}

TEST_F(PlannedRangesTest, ARoundKnowsWhichRangesOfTheCallItHas) {
  for (size_t i = 0; i < kMaxWireRanges + 5; ++i) add(2 * i, 1, 2 * i);
  const auto all = plan();
  for (const bool chosen : {false, true}) {
    std::vector<uint32_t> indices(ranges_.size());
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<uint32_t>(indices.size() - 1 - i);
    const auto choice = chosen ? std::optional(PlannedRounds::Chosen{indices, {}}) : std::nullopt;
    const auto rounds = begin(all, choice).value();
    rounds->next(operation_);
    EXPECT_EQ(operation_.named, std::pair(size_t{0}, size_t{kMaxWireRanges}));
    rounds->next(operation_);
    EXPECT_EQ(operation_.named, std::pair(size_t{kMaxWireRanges}, ranges_.size()));
    const auto part = PlannedRounds::begin(all, operation_.uses, choice, false, 1, 3).value();
    part->next(operation_);
    EXPECT_EQ(operation_.named, stretch_of(ranges_.size(), 1, 3));
  }
}

TEST_F(PlannedRangesTest, BlocksMeetInAnyPairs) {
  const LocalRange local{id_, memory_.data() + 100, 1000};  // 7 blocks of 128 bytes, and a part of one
  const auto plan = plan_blocks(registry_, local, {slot_, 4096}, 128, kInstance).value();
  EXPECT_EQ(plan->blocks, 7u);
  EXPECT_EQ(plan->remote_blocks, (memory_.size() - 4096) / 128);
  const std::array<uint32_t, 4> here{6, 0, 1, 1}, there{2, 900, 901, 5};
  const auto rounds = begin(plan, PlannedRounds::Chosen{here, there}).value();
  rounds->next(operation_);
  ASSERT_TRUE(rounds->done());
  ASSERT_EQ(operation_.ranges.size(), 3u) << "two are neighbours at both ends";
  EXPECT_EQ(operation_.bytes, 4u * 128);
  EXPECT_EQ(operation_.ranges[0].data, memory_.data() + 100 + 6 * 128);
  EXPECT_EQ(operation_.remote[0].offset, 4096u + 2 * 128);
  EXPECT_EQ(operation_.ranges[1].bytes, 256u);
  EXPECT_EQ(operation_.remote[1].offset, 4096u + 900 * 128);
  EXPECT_EQ(operation_.remote[2].offset, 4096u + 5 * 128);
  begin(plan).value()->next(operation_);
  EXPECT_EQ(operation_.bytes, 7u * 128) << "all that both have, joined";
  EXPECT_EQ(operation_.ranges.size(), 1u);
}

TEST_F(PlannedRangesTest, BlocksAreChecked) {
  const LocalRange local{id_, memory_.data(), 1280};
  const auto code = [&](const LocalRange& range, const RemoteRange& remote, size_t bytes) {
    return plan_blocks(registry_, range, remote, bytes, kInstance).status().code();
  };
  EXPECT_EQ(code(local, {slot_, 0}, 0), Code::kInvalidArgument);
  EXPECT_EQ(code({id_, memory_.data(), memory_.size() + 1}, {slot_, 0}, 128), Code::kInvalidArgument);
  EXPECT_EQ(code({MemoryId{99}, memory_.data(), 128}, {slot_, 0}, 128), Code::kNotFound);
  EXPECT_EQ(code(local, {slot_, memory_.size() + 1}, 128), Code::kInvalidArgument);
  EXPECT_EQ(code(local, {}, 128), Code::kInvalidArgument);
  const auto plan = plan_blocks(registry_, local, {slot_, memory_.size() - 256}, 128, kInstance).value();
  const auto refused = [&](std::span<const uint32_t> here, std::span<const uint32_t> there) {
    return begin(plan, PlannedRounds::Chosen{here, there}).status().detail();
  };
  const std::array<uint32_t, 2> good{0, 1}, far{0, 2}, near{0, 10};
  EXPECT_EQ(refused(good, far), "block 1 of 10, to block 2 of 2 (range 1)");
  EXPECT_EQ(refused(near, good), "block 10 of 10, to block 1 of 2 (range 1)");
  EXPECT_EQ(refused(far, {}), "block 2 of 10, to block 2 of 2 (range 1)") << "those of equal numbers";
  EXPECT_EQ(refused(good, std::span(good).first(1)), "2 blocks here, 1 there");
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

// Ranges of one region count once where they follow each other.
TEST_F(PlannedRangesTest, AListHoldsTheRegionsOfAllItsRanges) {
  const MemoryId part = registry_.add(memory_.data() + 4096, 4096, MemoryType::kHost).value();
  for (const MemoryId region : {id_, id_, part, id_, part, part}) {
    add(4096 + 8 * ranges_.size(), ranges_.size() == 4 ? 0 : 4, 16 * ranges_.size());
    ranges_.back().memory = region;
  }
  for (const bool remote : {false, true}) {
    Operation operation;
    give(remote ? remote_ : std::vector<RemoteRange>(), operation);
    ASSERT_EQ(operation.ranges.size(), 5u);
    for (size_t i = 0, from = 0; i < 5; ++i, ++from) {
      if (from == 4) ++from;  // of nothing
      EXPECT_EQ(operation.ranges[i].region().id, ranges_[from].memory) << i;
      EXPECT_EQ(operation.ranges[i].data, ranges_[from].data) << i;
    }
    for (const MemoryId region : {id_, part})
      EXPECT_EQ(registry_.remove(region, Deadline(TimePoint{})).status().code(), Code::kTimeout);
  }
  for (const MemoryId region : {part, id_}) EXPECT_TRUE(registry_.remove(region, Deadline(TimePoint{})).is_ok());
}

// The first part is the shortest, so that it begins early.
TEST_F(PlannedRangesTest, PartsAreAllOfThem) {
  for (const size_t count : {1, 2, 7, 4096, 16384}) {
    for (size_t parts = 1; parts <= kMaxParts; ++parts) {
      size_t next = 0, longest = 0;
      for (size_t part = 0; part < parts; ++part) {
        const auto [begin, end] = stretch_of(count, part, parts);
        EXPECT_EQ(begin, next);
        ASSERT_GE(end, begin);
        EXPECT_LE(longest, end - begin + 1);
        longest = end - begin;
        next = end;
      }
      EXPECT_EQ(next, count) << parts;
    }
  }
  EXPECT_EQ(parts_of(16384, uint64_t{1} << 40), kMaxParts);
  EXPECT_EQ(parts_of(16384, 1 << 20), 1u) << "short ones";
  EXPECT_EQ(parts_of(10, uint64_t{1} << 40), 1u) << "few";
}

TEST_F(PlannedRangesTest, PartsOfAListAreItsRangesInOrder) {
  const MemoryId part = registry_.add(memory_.data() + 4096, 4096, MemoryType::kHost).value();
  for (size_t i = 0; i < 60; ++i) {
    add(4096 + 16 * i, i % 7 == 0 ? 0 : 8, 32 * i);
    ranges_.back().memory = i / 5 % 2 == 0 ? id_ : part;
  }
  Operation whole;
  NamedRanges named(ranges_, remote_);
  ASSERT_TRUE(named.check(registry_, false).is_ok());
  whole.uses = named.take_uses();
  size_t next = 0;
  for (size_t each = 0; each < 4; ++each) {
    const auto [begin, end] = stretch_of(ranges_.size(), each, 4);
    Operation mover;
    named.give(end - begin, whole.uses, mover);
    for (const HeldRange& range : mover.ranges) {
      while (ranges_[next].bytes == 0) ++next;
      EXPECT_EQ(range.data, ranges_[next].data);
      EXPECT_EQ(range.region().id, ranges_[next].memory);
      ++next;
    }
    EXPECT_EQ(mover.ranges.size(), mover.remote.size());
    EXPECT_EQ(mover.named, std::pair(begin, end));
  }
  EXPECT_EQ(next, ranges_.size());
}

TEST_F(PlannedRangesTest, APlanHoldsNothingAndItsOperationHoldsTheRegions) {
  add(0, 10, 0);
  add(100, 10, 100);
  const auto made = plan();
  {
    const auto rounds = begin(made).value();
    rounds->next(operation_);
    operation_.ranges.clear();
    EXPECT_EQ(registry_.try_remove(id_).status().code(), Code::kExhausted) << "also between rounds";
    EXPECT_EQ(registry_.remove(id_, Deadline(TimePoint{})).status().code(), Code::kTimeout);
    operation_.uses.clear();
  }
  EXPECT_TRUE(registry_.try_remove(id_)->has_value());
  EXPECT_EQ(begin(made).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tcpx
