#include "base/memory_registry.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using namespace std::chrono_literals;

constexpr ConnId kConn{3}, kOtherConn{4};
constexpr size_t kBytes = 4096;

Deadline passed() {
  return Deadline::after(-1s);
}

/// Not dereferenced by anything here.
void* at(uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

class MemoryRegistryTest : public ::testing::Test {
 protected:
  MemoryId add(const void* data, size_t bytes = kBytes, MemoryType type = MemoryType::kHost) {
    Result<MemoryId> id = registry_.add(data, bytes, type);
    EXPECT_TRUE(id.is_ok()) << id.status().to_string();
    return id.is_ok() ? *id : MemoryId{};
  }
  RegionUse use(MemoryId id, const void* data, size_t bytes) {
    Result<RegionUse> result = registry_.use(id, data, bytes);
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    return result.is_ok() ? std::move(*result) : RegionUse();
  }
  Code code_of_use(MemoryId id, const void* data, size_t bytes) { return registry_.use(id, data, bytes).status().code(); }
  RemoteSlot advertise(MemoryId id, void* data, size_t bytes, ConnId conn = kConn) {
    Result<RemoteSlot> slot = registry_.advertise(conn, id, data, bytes);
    EXPECT_TRUE(slot.is_ok()) << slot.status().to_string();
    return slot.is_ok() ? *slot : RemoteSlot{};
  }
  Code code_of_look_up(const SlotId& slot, uint64_t offset, uint64_t bytes, ConnId conn = kConn) {
    auto advertised = registry_.look_up(conn, slot, true);
    return advertised.is_ok() ? part_of(**advertised, offset, bytes).status().code() : advertised.status().code();
  }
  /// Removes the last count of a region that nobody holds.
  void expect_removed(MemoryId id) {
    const Result<std::optional<Region>> removed = registry_.remove(id, passed());
    ASSERT_TRUE(removed.is_ok()) << removed.status().to_string();
    ASSERT_TRUE(removed->has_value());
    EXPECT_EQ((*removed)->id, id);
  }
  /// True once a removal of the last count has begun.
  bool is_closed(MemoryId id) { return code_of_use(id, memory_.data(), 1) == Code::kNotFound; }

  MemoryRegistry registry_{0x1234};
  std::array<std::byte, 4 * kBytes> memory_{};
};

// Regions
// ------------------------------------------------------------------------------------------------------------------

TEST_F(MemoryRegistryTest, RefusesWhatIsNoMemory) {
  const uintptr_t last = std::numeric_limits<uintptr_t>::max();
  EXPECT_EQ(registry_.add(nullptr, 1, MemoryType::kHost).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry_.add(memory_.data(), 0, MemoryType::kHost).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry_.add(at(last - 9), 11, MemoryType::kHost).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry_.add(at(4096), last, MemoryType::kCuda).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry_.regions(), 0u);
  EXPECT_NE(add(at(last - 9), 9), MemoryId{});
}

TEST_F(MemoryRegistryTest, CountsTheSameRangeAndTellsOthersApart) {
  const MemoryId id = add(memory_.data());
  EXPECT_NE(id, MemoryId{});
  EXPECT_EQ(add(memory_.data()), id);
  std::set<MemoryId> ids = {id, add(memory_.data(), kBytes - 1), add(memory_.data() + 1),
                            add(memory_.data(), kBytes, MemoryType::kCuda)};
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(registry_.regions(), 4u);

  const Result<std::optional<Region>> first = registry_.remove(id, passed());
  ASSERT_TRUE(first.is_ok());
  EXPECT_FALSE(first->has_value()) << "one count is left";
  EXPECT_EQ(code_of_use(id, memory_.data(), kBytes), Code::kOk);
  expect_removed(id);
  EXPECT_EQ(registry_.remove(id, passed()).status().code(), Code::kNotFound);
  EXPECT_EQ(registry_.try_remove(id).status().code(), Code::kNotFound);
  EXPECT_EQ(code_of_use(id, memory_.data(), kBytes), Code::kNotFound);
  EXPECT_EQ(registry_.regions(), 3u);
}

TEST_F(MemoryRegistryTest, NeverUsesAnIdAgain) {
  std::set<MemoryId> ids;
  for (int i = 0; i < 100; ++i) {
    const MemoryId id = add(memory_.data());
    EXPECT_TRUE(ids.insert(id).second);
    expect_removed(id);
  }
}

TEST_F(MemoryRegistryTest, OverlappingRegionsAreHeldApart) {
  const MemoryId whole = add(memory_.data(), 4 * kBytes);
  const MemoryId part = add(memory_.data() + kBytes, kBytes);
  const RegionUse held = use(whole, memory_.data() + kBytes, kBytes);
  expect_removed(part);
  EXPECT_EQ(registry_.remove(whole, passed()).status().code(), Code::kTimeout);
  EXPECT_EQ(held.region().id, whole);
}

// Uses
// ------------------------------------------------------------------------------------------------------------------

TEST_F(MemoryRegistryTest, ARangeMustLieInItsRegion) {
  std::byte* const data = memory_.data() + kBytes;
  const MemoryId id = add(data);
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  using Range = std::pair<ptrdiff_t, size_t>;  // from its begin on
  for (const auto& [offset, bytes] : {Range(0, kBytes), {0, 0}, {kBytes, 0}, {kBytes - 1, 1}, {1, kBytes - 1}})
    EXPECT_EQ(code_of_use(id, data + offset, bytes), Code::kOk) << offset << " " << bytes;
  for (const auto& [offset, bytes] : {Range(-1, 1),
                                      {-1, kBytes},
                                      {0, kBytes + 1},
                                      {1, kBytes},
                                      {kBytes, 1},
                                      {kBytes + 1, 0},
                                      {0, kMost},
                                      {1, kMost},
                                      {1, kMost - 1},
                                      {-1, 0}})
    EXPECT_EQ(code_of_use(id, data + offset, bytes), Code::kInvalidArgument) << offset << " " << bytes;
  EXPECT_EQ(code_of_use(id, nullptr, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of_use(MemoryId{}, data, 1), Code::kNotFound);
  EXPECT_EQ(code_of_use(MemoryId{~uint64_t{0}}, data, 1), Code::kNotFound);
}

TEST_F(MemoryRegistryTest, ARefusedRangeNamesRangeAndRegion) {
  const MemoryId id = add(at(0x10000), 256);
  const Status status = registry_.use(id, at(0x10010), 512).status();
  EXPECT_EQ(status.detail(), "512 bytes at 0x10010 do not lie in the registered 256 bytes at 0x10000");
}

TEST_F(MemoryRegistryTest, AUseMovesIsCopiedAndIsReleasedOnce) {
  static_assert(std::is_nothrow_move_constructible_v<RegionUse> && std::is_nothrow_move_assignable_v<RegionUse>);
  const MemoryId id = add(memory_.data());
  const MemoryId other = add(memory_.data() + kBytes);
  RegionUse first = use(id, memory_.data(), 1);
  RegionUse second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): the state after a move
  ASSERT_TRUE(second);
  EXPECT_EQ(second.region().id, id);
  EXPECT_EQ(registry_.remove(id, passed()).status().code(), Code::kTimeout);

  RegionUse third = use(other, memory_.data() + kBytes, 1);
  third = std::move(second);
  expect_removed(other);
  EXPECT_EQ(registry_.remove(id, passed()).status().code(), Code::kTimeout);
  {
    const RegionUse copy = third;
    third = RegionUse();
    EXPECT_EQ(registry_.remove(id, passed()).status().code(), Code::kTimeout) << "the copy holds it too";
    third = copy;
  }
  RegionUse& same = third;
  third = std::move(same);
  EXPECT_TRUE(third);
  EXPECT_EQ(registry_.remove(id, passed()).status().code(), Code::kTimeout);
  third = RegionUse();
  expect_removed(id);
}

// Removing
// ------------------------------------------------------------------------------------------------------------------

TEST_F(MemoryRegistryTest, ARemovalThatTimesOutLeavesTheRegionUsable) {
  const MemoryId id = add(memory_.data());
  const RemoteSlot slot = advertise(id, memory_.data(), kBytes);
  {
    const RegionUse held = use(id, memory_.data(), kBytes);
    const Status status = registry_.remove(id, Deadline::after(5ms)).status();
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.detail().find("in use by operations (1 hold"), std::string::npos) << status.detail();
    EXPECT_EQ(code_of_look_up(slot.id, 0, 1), Code::kNotFound) << "its advertisements are gone";
    EXPECT_EQ(registry_.advertised(), 0u);
    EXPECT_EQ(code_of_use(id, memory_.data(), kBytes), Code::kOk);
    EXPECT_EQ(add(memory_.data()), id) << "still known";
    EXPECT_FALSE(registry_.remove(id, passed())->has_value()) << "with the count it had";
  }
  EXPECT_NE(advertise(id, memory_.data(), kBytes).id, slot.id);
  expect_removed(id);
}

TEST_F(MemoryRegistryTest, OneAdvertisementIsWithdrawnAndTheOthersStay) {
  const MemoryId id = add(memory_.data());
  const RemoteSlot slot = advertise(id, memory_.data(), kBytes);
  const RemoteSlot other = advertise(id, memory_.data(), 1);
  EXPECT_TRUE(registry_.withdraw(slot.id).is_ok());
  EXPECT_EQ(code_of_look_up(slot.id, 0, 1), Code::kNotFound);
  EXPECT_EQ(code_of_look_up(other.id, 0, 1), Code::kOk);
  EXPECT_EQ(registry_.advertised(), 1u);
  EXPECT_EQ(registry_.withdraw(slot.id).code(), Code::kNotFound) << "once";
  EXPECT_NE(advertise(id, memory_.data(), kBytes).id, slot.id) << "not what was withdrawn";
  EXPECT_EQ(code_of_use(id, memory_.data(), kBytes), Code::kOk);
  expect_removed(id);
}

TEST_F(MemoryRegistryTest, TriesWithoutWaiting) {
  const MemoryId id = add(memory_.data());
  add(memory_.data());
  const RemoteSlot slot = advertise(id, memory_.data(), kBytes);
  RegionUse held = use(id, memory_.data(), kBytes);
  EXPECT_FALSE(registry_.try_remove(id)->has_value());
  EXPECT_EQ(code_of_look_up(slot.id, 0, 1), Code::kOk);

  EXPECT_EQ(registry_.try_remove(id).status().code(), Code::kExhausted);
  EXPECT_EQ(code_of_look_up(slot.id, 0, 1), Code::kNotFound) << "withdrawn at the first call";
  EXPECT_TRUE(is_closed(id));
  EXPECT_EQ(registry_.try_remove(id).status().code(), Code::kExhausted);

  EXPECT_EQ(registry_.remove(id, passed()).status().code(), Code::kTimeout) << "gives up";
  EXPECT_EQ(code_of_use(id, memory_.data(), kBytes), Code::kOk);

  EXPECT_EQ(registry_.try_remove(id).status().code(), Code::kExhausted);
  EXPECT_EQ(add(memory_.data()), id) << "and so does adding it";
  EXPECT_FALSE(is_closed(id));
  EXPECT_FALSE(registry_.try_remove(id)->has_value());

  EXPECT_EQ(registry_.try_remove(id).status().code(), Code::kExhausted);
  held = RegionUse();
  const Result<std::optional<Region>> removed = registry_.try_remove(id);
  ASSERT_TRUE(removed.is_ok() && removed->has_value());
  EXPECT_EQ((*removed)->bytes, kBytes);
  EXPECT_EQ(registry_.regions(), 0u);
}

TEST_F(MemoryRegistryTest, GpuMemoryIsFoundInTheOrderInWhichItWasAdded) {
  EXPECT_EQ(registry_.newest_on_gpu(), MemoryId{});
  add(memory_.data());
  EXPECT_EQ(registry_.newest_on_gpu(), MemoryId{}) << "host memory";
  const MemoryId first = add(memory_.data() + 1, kBytes, MemoryType::kCuda),
                 second = add(memory_.data() + 2, kBytes, MemoryType::kCuda),
                 third = add(memory_.data() + 3, kBytes, MemoryType::kCuda);
  EXPECT_EQ(add(memory_.data() + 1, kBytes, MemoryType::kCuda), first);
  EXPECT_EQ(registry_.newest_on_gpu(), third);
  const auto next = [this](MemoryId after) {
    const RegionUse use = registry_.use_on_gpu(after);
    return use ? use.region().id : MemoryId{};
  };
  EXPECT_EQ(next(MemoryId{}), first);
  EXPECT_EQ(next(first), second);
  EXPECT_EQ(next(third), MemoryId{});

  const RegionUse held = registry_.use_on_gpu(first);
  EXPECT_EQ(registry_.try_remove(second).status().code(), Code::kExhausted);
  EXPECT_EQ(next(first), third) << "the second is being removed";
  expect_removed(third);
  EXPECT_EQ(next(first), MemoryId{});
  EXPECT_EQ(registry_.newest_on_gpu(), third);
}

// Advertisements
// ------------------------------------------------------------------------------------------------------------------

TEST_F(MemoryRegistryTest, ASlotSaysWhatItIs) {
  const MemoryId id = add(memory_.data());
  const RemoteSlot slot = advertise(id, memory_.data() + 1, 10);
  EXPECT_EQ(std::string_view(slot.magic.data(), slot.magic.size()), "TXSL");
  EXPECT_EQ(slot.version, 2);
  EXPECT_EQ(slot.flags, 0);
  EXPECT_EQ(slot.endpoint, 0x1234u);
  EXPECT_EQ(slot.bytes, 10u);
  EXPECT_NE(slot.id, SlotId{});
  for (const uint64_t word : slot.reserved) EXPECT_EQ(word, 0u);
  EXPECT_TRUE(check_slot(slot).is_ok());

  RemoteSlot wrong = slot;
  wrong.magic[3] = 'X';
  EXPECT_EQ(check_slot(wrong).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_slot(RemoteSlot{}).code(), Code::kInvalidArgument);
  wrong = slot;
  wrong.id = {};
  EXPECT_EQ(check_slot(wrong).code(), Code::kInvalidArgument);
  for (const uint16_t version : {0, 1, 3, 65535}) {
    wrong = slot;
    wrong.version = version;
    EXPECT_EQ(check_slot(wrong).code(), Code::kUnsupported) << version;
  }
}

/// The state word behind an output of std::mt19937_64, whose last steps can be undone.
uint64_t state_behind(uint64_t x) {
  x ^= x >> 43;
  x ^= (x << 37) & 0xfff7eee000000000u;
  uint64_t y = x;
  for (int i = 0; i < 4; ++i) y = x ^ ((y << 17) & 0x71d67fffeda60000u);
  uint64_t z = y;
  for (int i = 0; i < 3; ++i) z = y ^ ((z >> 29) & 0x5555555555555555u);
  return z;
}

// A slot grants access, so whoever has many must not be able to work out the next one.
TEST_F(MemoryRegistryTest, B13_SlotIdsDoNotTellTheNext) {
  std::vector<std::byte> memory(1000);
  const MemoryId id = add(memory.data(), memory.size());
  std::stringstream state;
  for (size_t i = 0; i < std::mt19937_64::state_size / 2; ++i) {
    const SlotId slot = advertise(id, memory.data() + i, 1).id;
    state << state_behind(slot.high) << ' ' << state_behind(slot.low) << ' ';
  }
  state << std::mt19937_64::state_size;
  std::mt19937_64 guess;
  state >> guess;
  ASSERT_TRUE(static_cast<bool>(state));
  for (size_t i = 0; i < 100; ++i)
    EXPECT_NE(advertise(id, memory.data() + 400 + i, 1).id.high, guess()) << "the number of slot " << i << " could be foretold";
}

TEST_F(MemoryRegistryTest, TheSameRangeForTheSameConnectionGivesTheSameSlot) {
  const MemoryId id = add(memory_.data(), 2 * kBytes);
  const MemoryId part = add(memory_.data(), kBytes);
  const SlotId slot = advertise(id, memory_.data(), kBytes).id;
  EXPECT_EQ(advertise(id, memory_.data(), kBytes).id, slot);
  EXPECT_EQ(registry_.advertised(), 1u);
  const std::set<SlotId> slots = {
      slot, advertise(id, memory_.data(), kBytes - 1).id, advertise(id, memory_.data() + 1, kBytes).id,
      advertise(id, memory_.data(), kBytes, kOtherConn).id, advertise(part, memory_.data(), kBytes).id};
  EXPECT_EQ(slots.size(), 5u);
  EXPECT_EQ(registry_.advertised(), 5u);
}

TEST_F(MemoryRegistryTest, OnlyRegisteredMemoryIsAdvertised) {
  const MemoryId id = add(memory_.data());
  EXPECT_EQ(registry_.advertise(kConn, MemoryId{99}, memory_.data(), 1).status().code(), Code::kNotFound);
  EXPECT_EQ(registry_.advertise(kConn, id, memory_.data() + 1, kBytes).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry_.advertised(), 0u);
}

TEST_F(MemoryRegistryTest, ALookUpIsBoundByWhatWasAdvertised) {
  std::byte* const data = memory_.data() + kBytes;
  const MemoryId id = add(memory_.data(), 4 * kBytes);
  const SlotId slot = advertise(id, data, kBytes).id;
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>(0, kBytes), {0, 0}, {kBytes, 0}, {kBytes - 1, 1}}) {
    const HeldRange all = *registry_.look_up(kConn, slot, true).value();
    const Result<std::byte*> place = part_of(all, offset, bytes);
    ASSERT_TRUE(place.is_ok()) << place.status().to_string();
    EXPECT_EQ(*place, data + offset);
    EXPECT_EQ(all.region().id, id);
  }
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>(0, kBytes + 1),
                                      {1, kBytes},
                                      {kBytes, 1},
                                      {kBytes + 1, 0},
                                      {kMost, 1},
                                      {kMost, kMost},
                                      {1, kMost},
                                      {2, kMost - 1},
                                      {kMost, 0},
                                      {kMost - kBytes + 1, kBytes}}) {
    EXPECT_EQ(code_of_look_up(slot, offset, bytes), Code::kInvalidArgument) << offset << " " << bytes;
  }
  const Result<std::optional<HeldRange>> held = registry_.look_up(kConn, slot, true);
  EXPECT_EQ(registry_.remove(id, passed()).status().code(), Code::kTimeout) << "a range that was looked up holds its region";
}

TEST_F(MemoryRegistryTest, WhatIsForReadingIsNotWrittenTo) {
  const MemoryId id = add(memory_.data());
  const SlotId both = advertise(id, memory_.data(), kBytes).id;
  const SlotId reading = registry_.advertise(kConn, id, memory_.data(), kBytes, SlotAccess::kRead).value().id;
  EXPECT_NE(both, reading);
  EXPECT_EQ(registry_.look_up(kConn, reading, true).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(registry_.look_up(kConn, reading, false).value().has_value());
  EXPECT_TRUE(registry_.look_up(kConn, both, true).value().has_value());
  EXPECT_EQ(registry_.advertise(kConn, id, memory_.data(), kBytes, SlotAccess::kRead).value().id, reading);
}

TEST_F(MemoryRegistryTest, WhatIsForWritingIsNotRead) {
  const MemoryId id = add(memory_.data());
  const SlotId writing = registry_.advertise(kConn, id, memory_.data(), kBytes, SlotAccess::kWrite).value().id;
  EXPECT_EQ(registry_.look_up(kConn, writing, false).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(registry_.look_up(kConn, writing, true).value().has_value());
}

TEST_F(MemoryRegistryTest, SlotsEndByThemselves) {
  const MemoryId id = add(memory_.data());
  const TimePoint now = Clock::steady().now();
  const auto until = [&](TimePoint ends) {
    return registry_.advertise(kConn, id, memory_.data(), kBytes, {}, nullptr, nullptr, {.at = ends}).value().id;
  };
  const SlotId stays = until(TimePoint::max()), later = until(now + std::chrono::hours(1)),
               same = until(now + std::chrono::hours(1));
  const SlotId ended = until(now);
  EXPECT_NE(later, same) << "each has an end of its own";
  EXPECT_EQ(until(TimePoint::max()), stays);
  EXPECT_EQ(registry_.look_up(kConn, ended, true).status().code(), Code::kNotFound);
  EXPECT_EQ(registry_.withdraw(ended).code(), Code::kNotFound);
  for (const SlotId& slot : {stays, later, same}) EXPECT_TRUE(registry_.look_up(kConn, slot, true).value().has_value());
  const SlotId soon = until(Clock::steady().now() + std::chrono::milliseconds(20));
  const auto held = registry_.look_up(kConn, soon, true);
  EXPECT_TRUE(testing::wait_until([&] { return registry_.look_up(kConn, soon, true).status().code() == Code::kNotFound; }));
  EXPECT_TRUE(held.is_ok() && held->has_value()) << "what was found before goes on";
  EXPECT_EQ(registry_.advertised(), 3u);
  EXPECT_TRUE(registry_.withdraw(same).is_ok());
  EXPECT_TRUE(registry_.look_up(kConn, later, true).value().has_value()) << "not the one with the same end";
  EXPECT_EQ(registry_.advertised(), 2u);
  registry_.forget(kConn);
  EXPECT_EQ(registry_.advertised(), 0u);
  const SlotId last = until(now + std::chrono::hours(1));
  EXPECT_EQ(registry_.advertised(), 1u);
  (void)last;
}

TEST_F(MemoryRegistryTest, SlotsEndWithTheirLastUse) {
  const MemoryId id = add(memory_.data());
  const auto of_uses = [&](uint32_t uses) {
    return registry_.advertise(kConn, id, memory_.data(), kBytes, {}, nullptr, nullptr, {.uses = uses}).value().id;
  };
  const auto counts = [&](const SlotId& slot) {
    bool counted = false;
    const auto held = registry_.look_up(kConn, slot, true, &counted);
    EXPECT_TRUE(held.is_ok()) << held.status().to_string();
    return counted;
  };
  const SlotId any = of_uses(0), once = of_uses(1), twice = of_uses(2);
  EXPECT_EQ(of_uses(0), any) << "the one that is shared";
  EXPECT_NE(of_uses(1), once) << "each call has one of its own";
  EXPECT_FALSE(counts(any));
  EXPECT_TRUE(counts(once)) << "a look takes nothing";
  EXPECT_TRUE(counts(once));
  const auto held = registry_.look_up(kConn, once, true);
  const std::array both{once, twice};
  EXPECT_TRUE(registry_.spend(both).is_ok());
  EXPECT_EQ(registry_.look_up(kConn, once, true).status().code(), Code::kNotFound);
  EXPECT_FALSE(registry_.is_advertised(once));
  EXPECT_TRUE(registry_.is_advertised(twice));
  EXPECT_EQ(registry_.spend(both).code(), Code::kNotFound);
  EXPECT_TRUE(registry_.spend({&twice, 1}).is_ok()) << "nothing was taken with the one that had ended";
  EXPECT_EQ(registry_.spend({&twice, 1}).code(), Code::kNotFound);
  EXPECT_TRUE(held.is_ok() && held->has_value()) << "what was found before goes on";
  EXPECT_EQ(registry_.advertised(), 2u);
  EXPECT_EQ(of_uses(0), any);
}

TEST_F(MemoryRegistryTest, WhatTheGpuIsNotDoneWithIsAskedForAgain) {
  struct Mark final : GpuMark {
    explicit Mark(Result<bool>& answer) : answer_(answer) {}
    Result<bool> reached() override { return answer_; }
    Result<bool>& answer_;
  };
  Result<bool> first = false, second = false;
  int one = 0, other = 0;
  const MemoryId id = add(memory_.data());
  const auto advertise_after = [&](Result<bool>& mark, int& stream) {
    return registry_.advertise(kConn, id, memory_.data(), kBytes, SlotAccess::kReadWrite, std::make_unique<Mark>(mark), &stream)
        .value()
        .id;
  };
  const auto is_there = [&](const SlotId& slot) { return registry_.look_up(kConn, slot, true).value().has_value(); };
  const SlotId slot = advertise_after(first, one);
  EXPECT_FALSE(is_there(slot));
  first = true;
  EXPECT_TRUE(is_there(slot));
  first = false;
  EXPECT_TRUE(is_there(slot)) << "a mark that was reached is not asked again";

  EXPECT_EQ(advertise_after(first, one), slot);
  EXPECT_EQ(advertise_after(second, other), slot);
  second = true;
  EXPECT_FALSE(is_there(slot)) << "that of the other stream is not reached";
  second = Status(Code::kCuda, "query event", "broken");
  EXPECT_EQ(advertise_after(second, one), slot) << "takes the place of the first";
  EXPECT_EQ(registry_.look_up(kConn, slot, true).status().code(), Code::kCuda);
}

TEST_F(MemoryRegistryTest, AConnectionSeesOnlyWhatWasAdvertisedToIt) {
  const MemoryId id = add(memory_.data());
  const SlotId slot = advertise(id, memory_.data(), kBytes).id;
  EXPECT_EQ(code_of_look_up(slot, 0, 1), Code::kOk);
  EXPECT_EQ(code_of_look_up(slot, 0, 1, kOtherConn), Code::kNotFound);
  EXPECT_EQ(code_of_look_up({slot.high, slot.low + 1}, 0, 1), Code::kNotFound);
  EXPECT_EQ(code_of_look_up({slot.high + 1, slot.low}, 0, 1), Code::kNotFound);
  EXPECT_EQ(code_of_look_up({}, 0, 0), Code::kNotFound);
}

TEST_F(MemoryRegistryTest, ForgetsAConnection) {
  const MemoryId first = add(memory_.data(), kBytes);
  const MemoryId second = add(memory_.data(), 2 * kBytes);
  std::vector<SlotId> slots;
  for (const MemoryId id : {first, second}) {
    for (int i = 0; i < 10; ++i) slots.push_back(advertise(id, memory_.data() + i, 1).id);
  }
  const SlotId before = advertise(first, memory_.data(), 1, ConnId{2}).id;
  const SlotId after = advertise(second, memory_.data(), 1, kOtherConn).id;
  registry_.forget(kConn);
  for (const SlotId& slot : slots) EXPECT_EQ(code_of_look_up(slot, 0, 1), Code::kNotFound);
  EXPECT_EQ(code_of_look_up(before, 0, 1, ConnId{2}), Code::kOk);
  EXPECT_EQ(code_of_look_up(after, 0, 1, kOtherConn), Code::kOk);
  EXPECT_EQ(registry_.advertised(), 2u);
  EXPECT_NE(advertise(first, memory_.data(), 1).id, slots.front());
  registry_.forget(ConnId{99});
  EXPECT_EQ(registry_.advertised(), 3u);
}

TEST_F(MemoryRegistryTest, ASlotForAnyConnectionOutlivesThem) {
  const MemoryId id = add(memory_.data());
  const SlotId any = advertise(id, memory_.data(), kBytes, kAnyConnection).id;
  EXPECT_NE(advertise(id, memory_.data(), kBytes).id, any);
  for (const ConnId conn : {kConn, kOtherConn, ConnId{1000}}) EXPECT_EQ(code_of_look_up(any, 1, 1, conn), Code::kOk);
  registry_.forget(kConn);
  EXPECT_EQ(code_of_look_up(any, 1, 1), Code::kOk);
  EXPECT_EQ(code_of_look_up(any, 1, kBytes), Code::kInvalidArgument);
  expect_removed(id);
  EXPECT_EQ(code_of_look_up(any, 1, 1), Code::kNotFound);
}

TEST_F(MemoryRegistryTest, TheNumberOfAdvertisementsIsBounded) {
  constexpr size_t kMost = MemoryRegistry::kMaxAdverts;
  const MemoryId id = add(at(0x100000), kMost + 1);
  for (size_t i = 0; i < kMost; ++i) ASSERT_TRUE(registry_.advertise(kConn, id, at(0x100000 + i), 1).is_ok());
  EXPECT_EQ(registry_.advertise(kConn, id, at(0x100000 + kMost), 1).status().code(), Code::kExhausted);
  EXPECT_TRUE(registry_.advertise(kConn, id, at(0x100000), 1).is_ok()) << "known already";
  registry_.forget(kConn);
  EXPECT_TRUE(registry_.advertise(kConn, id, at(0x100000 + kMost), 1).is_ok());
}

}  // namespace
}  // namespace tcpx
