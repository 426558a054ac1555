#include "net/soft/staging_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/hidden_memory_ops.h"

namespace tcpx::testing {
namespace {

using soft::StagingPool;
using Slot = StagingPool::Slot;

struct CountingClient final : StagingPool::Client {
  int told = 0;
  void staging_changed() override { ++told; }
};

class StagingPoolTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(pool_.prepare().is_ok()); }
  std::vector<Slot> take(StagingPool::Client& client, uint32_t count) {
    std::vector<Slot> slots;
    for (uint32_t i = 0; i < count; ++i) {
      slots.push_back(pool_.try_take(client));
      EXPECT_TRUE(slots.back()) << i;
    }
    return slots;
  }
  HiddenMemoryOps memory_;
  StagingPool pool_{memory_, 0};
};

constexpr size_t kPoolBytes = size_t{StagingPool::kSlots} * StagingPool::kSlotBytes;

TEST(StagingPoolMemory, IsMadeByTheFirstWhoNeedsItAndOnce) {
  HiddenMemoryOps memory;
  {
    StagingPool pool(memory, 0);
    EXPECT_EQ(memory.mapped_bytes(), 0u);
    EXPECT_FALSE(pool.try_take()) << "nothing there yet";
    ASSERT_TRUE(pool.prepare().is_ok());
    ASSERT_TRUE(pool.prepare().is_ok());
    EXPECT_EQ(memory.mapped_bytes(), kPoolBytes);
    EXPECT_EQ(pool.free_count(), StagingPool::kSlots);
  }
  EXPECT_EQ(memory.mapped_bytes(), 0u);
}

TEST(StagingPoolMemory, WhatCannotBeMadeIsAnError) {
  HiddenMemoryOps memory;
  StagingPool pool(memory, 1);
  EXPECT_EQ(pool.prepare().code(), Code::kInvalidArgument) << "there is no GPU 1";
  EXPECT_FALSE(pool.try_take());
}

TEST_F(StagingPoolTest, SlotsDoNotOverlapAndComeBack) {
  CountingClient client;
  {
    std::vector<Slot> slots = take(client, StagingPool::kSlots);
    std::vector<const std::byte*> begins;
    for (const Slot& slot : slots) begins.push_back(slot.data());
    std::sort(begins.begin(), begins.end());
    for (size_t i = 1; i < begins.size(); ++i) EXPECT_EQ(begins[i] - begins[i - 1], StagingPool::kSlotBytes);
    EXPECT_FALSE(pool_.try_take());
    EXPECT_FALSE(pool_.try_take(client));
    EXPECT_FALSE(pool_.is_contended()) << "who holds some does not wait in line";
  }
  EXPECT_EQ(pool_.free_count(), StagingPool::kSlots);
  EXPECT_EQ(client.told, 0);
}

TEST_F(StagingPoolTest, TheSlotFreeForTheLongestIsUsedNext) {
  CountingClient client;
  const std::byte* first = pool_.try_take(client).data();
  for (uint32_t i = 1; i < StagingPool::kSlots; ++i) EXPECT_NE(pool_.try_take(client).data(), first);
  EXPECT_EQ(pool_.try_take(client).data(), first);
}

TEST_F(StagingPoolTest, FirstSlotsAreGivenInLine) {
  CountingClient hog, a, b;
  std::vector<Slot> hogged = take(hog, StagingPool::kSlots);
  EXPECT_FALSE(pool_.try_take(a));
  EXPECT_FALSE(pool_.try_take(b));
  EXPECT_TRUE(pool_.is_contended());
  hogged.pop_back();
  EXPECT_EQ(a.told, 1);
  EXPECT_EQ(b.told, 0);
  EXPECT_FALSE(pool_.try_take(b)) << "a is first";
  EXPECT_FALSE(pool_.try_take(hog)) << "and who holds some comes last";
  EXPECT_FALSE(pool_.try_take());
  hogged.pop_back();
  EXPECT_EQ(b.told, 1) << "there is one for b, too";
  Slot of_b = pool_.try_take(b);
  EXPECT_TRUE(of_b) << "though a has not come for its own";
  Slot of_a = pool_.try_take(a);
  EXPECT_TRUE(of_a);
  EXPECT_FALSE(pool_.try_take(a)) << "a second one";
  EXPECT_FALSE(pool_.is_contended());
  hogged.pop_back();
  EXPECT_TRUE(pool_.try_take(hog));
}

TEST_F(StagingPoolTest, WhoHoldsSlotsIsToldWhenALineForms) {
  CountingClient hog, other, a, b;
  Slot of_other = pool_.try_take(other);
  std::vector<Slot> hogged = take(hog, StagingPool::kSlots - 1);
  EXPECT_FALSE(pool_.try_take(a));
  EXPECT_GE(hog.told, 1);
  EXPECT_EQ(other.told, 1);
  EXPECT_FALSE(pool_.try_take(b));
  EXPECT_EQ(other.told, 1) << "the line was there already";
  pool_.forget(a);
  pool_.forget(b);
}

TEST_F(StagingPoolTest, ASlotTakenForNobodyCountsForWhoAdoptsIt) {
  CountingClient adopter, waiting;
  Slot adopted = pool_.try_take();
  std::vector<Slot> others = take(adopter, StagingPool::kSlots - 1);
  others.clear();
  adopted.move_to(adopter);
  std::vector<Slot> rest;
  while (Slot slot = pool_.try_take()) rest.push_back(std::move(slot));
  EXPECT_FALSE(pool_.try_take(adopter));
  EXPECT_FALSE(pool_.is_contended()) << "it holds one";
  EXPECT_FALSE(pool_.try_take(waiting));
  EXPECT_EQ(adopter.told, 1);
  adopted.reset();
  EXPECT_TRUE(pool_.try_take(waiting));
}

TEST_F(StagingPoolTest, WhoHasGivenAllBackStandsInLineAgain) {
  CountingClient hog, again;
  { const Slot given_back = pool_.try_take(again); }
  std::vector<Slot> hogged = take(hog, StagingPool::kSlots);
  EXPECT_FALSE(pool_.try_take(again));
  EXPECT_TRUE(pool_.is_contended());
  hogged.pop_back();
  EXPECT_EQ(again.told, 1);
  EXPECT_TRUE(pool_.try_take(again));
}

TEST_F(StagingPoolTest, WhoLeavesTheLineHoldsNobodyUp) {
  CountingClient hog, leaving, next;
  std::vector<Slot> hogged = take(hog, StagingPool::kSlots);
  EXPECT_FALSE(pool_.try_take(leaving));
  EXPECT_FALSE(pool_.try_take(next));
  hogged.pop_back();
  EXPECT_EQ(next.told, 0);
  pool_.forget(leaving);
  EXPECT_EQ(next.told, 1) << "what was kept for the one that leaves";
  const Slot of_next = pool_.try_take(next);
  EXPECT_TRUE(of_next);
  EXPECT_FALSE(pool_.try_take(leaving)) << "it stands in line anew";
  pool_.forget(leaving);
  EXPECT_FALSE(pool_.is_contended());
}

TEST_F(StagingPoolTest, ASlotComesBackOnlyAfterItsCopy) {
  memory_.hold_copies();
  const MemoryBuffer source = std::move(*memory_.allocate_device(0, 4096));
  for (const bool now : {false, true}) {
    Slot slot = pool_.try_take();
    if (now) {
      ASSERT_TRUE(slot.copy_now(source.device(), 50).is_ok());
    } else {
      slot.copy(100, source.device(), 50);
    }
    EXPECT_FALSE(*slot.is_copied());
    std::atomic<bool> back = false;
    std::thread owner([&] {
      slot.reset();
      back = true;
    });
    while (memory_.held_copies() == 0) std::this_thread::yield();
    EXPECT_EQ(pool_.free_count(), StagingPool::kSlots - 1);
    EXPECT_FALSE(back);
    memory_.end_copy(0);
    owner.join();
    EXPECT_EQ(pool_.free_count(), StagingPool::kSlots);
  }
}

}  // namespace
}  // namespace tcpx::testing
