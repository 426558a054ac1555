// What the peers of an endpoint may make it hold together, and how they share it.
#include "endpoint/peer_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tcpx {
namespace {

constexpr uint64_t kFloor = PeerMemory::kFloorBytes;

class PeerMemoryTest : public ::testing::Test {
 protected:
  /// As many places of that address as it gets.
  size_t fill(const std::string& address, bool invited = false) {
    const size_t before = places_.size();
    for (;;) {
      auto place = memory_.admit(address, invited);
      if (!place.is_ok()) return places_.size() - before;
      places_.push_back(std::move(*place));
    }
  }
  /// As much as it gets. @return how much
  static uint64_t grow(PeerMemory::Place& place) {
    uint64_t grown = 0;
    while (place.grow(kFloor / 4)) grown += kFloor / 4;
    return grown;
  }

  PeerMemory memory_{64 * kFloor};
  std::vector<PeerMemory::Place> places_;
};

TEST_F(PeerMemoryTest, EveryPlaceHasItsFloorAndGivesItBack) {
  {
    PeerMemory::Place place = memory_.admit("a", false).value();
    EXPECT_EQ(place.bytes(), kFloor);
    EXPECT_TRUE(place.grow(100));
    EXPECT_EQ(memory_.held(), kFloor + 100);
    PeerMemory::Place moved = std::move(place);
    moved.shrink(50);
    EXPECT_EQ(memory_.held(), kFloor + 50);
    PeerMemory::Place other = memory_.admit("a", false).value();
    moved = std::move(other);
    EXPECT_EQ(memory_.held(), 2 * kFloor + 50);
  }
  EXPECT_EQ(memory_.held(), 0u);
}

// One that holds nothing any more still is a place.
TEST_F(PeerMemoryTest, PlacesOfNothingEndInAnyOrder) {
  PeerMemory::Place first = memory_.admit("a", false).value(), second = memory_.admit("a", false).value();
  first.shrink(kFloor);
  second.shrink(kFloor);
  first = {};
  EXPECT_TRUE(second.grow(7));
  EXPECT_EQ(memory_.held(), 7u);
  second = {};
  EXPECT_EQ(memory_.held(), 0u);
}

TEST_F(PeerMemoryTest, OneAddressLeavesAsMuchAsItHas) {
  EXPECT_EQ(fill("a"), 32u);
  EXPECT_EQ(fill("b"), 16u);
  EXPECT_EQ(fill("c"), 8u);
  EXPECT_EQ(fill("d"), 4u);
  places_.erase(places_.begin(), places_.begin() + 32);
  EXPECT_EQ(fill("a"), 18u) << "half of what the others have left";
}

TEST_F(PeerMemoryTest, AnAddressThatHasNothingGetsWhatIsLeft) {
  EXPECT_EQ(fill("us", true), 64u) << "this end has asked for them";
  EXPECT_EQ(fill("a"), 0u);
  places_.pop_back();
  EXPECT_EQ(fill("a"), 1u);
}

TEST_F(PeerMemoryTest, ARefusalSaysWhatThereIsAndWhatToSet) {
  EXPECT_EQ(fill("10.1.2.3"), 32u);
  const Status crowd = memory_.admit("10.1.2.3", false).status();
  EXPECT_EQ(crowd.code(), Code::kExhausted);
  for (const char* said : {"10.1.2.3", "134217728", "268435456", "max_peer_bytes", "UCCL_TCPX_MAX_PEER_BYTES"})
    EXPECT_NE(crowd.to_string().find(said), std::string::npos) << said << " in " << crowd.to_string();
  EXPECT_EQ(fill("us", true), 32u);
  const Status full = memory_.admit("us", true).status();
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_NE(full.to_string().find("UCCL_TCPX_MAX_PEER_BYTES"), std::string::npos) << full.to_string();
}

TEST_F(PeerMemoryTest, WhatGrowsLeavesAsMuchAsItsAddressHas) {
  PeerMemory::Place a = memory_.admit("a", false).value(), more = memory_.admit("a", false).value();
  EXPECT_EQ(grow(a), 30 * kFloor);
  EXPECT_EQ(grow(more), 0u);
  PeerMemory::Place b = memory_.admit("b", false).value();
  EXPECT_EQ(grow(b), 15 * kFloor);
  EXPECT_TRUE(memory_.admit("c", false).is_ok());
  a = {};
  EXPECT_GT(grow(b), 0u);
}

TEST_F(PeerMemoryTest, APartIsWhereAllTogetherEnd) {
  PeerMemory::Place a = memory_.admit("a", false).value(), b = memory_.admit("b", false).value();
  EXPECT_TRUE(a.grow(14 * kFloor, 4));
  EXPECT_FALSE(b.grow(1, 4));
  EXPECT_FALSE(b.is_crowded());
  EXPECT_TRUE(b.grow(16 * kFloor, 2));
  EXPECT_FALSE(a.is_crowded());
  EXPECT_TRUE(a.grow(1));
  EXPECT_TRUE(b.is_crowded());
}

TEST_F(PeerMemoryTest, NoSumWraps) {
  PeerMemory::Place a = memory_.admit("a", false).value();
  EXPECT_FALSE(a.grow(~uint64_t{0}));
  EXPECT_FALSE(a.grow(~uint64_t{0} - kFloor));
  EXPECT_EQ(memory_.held(), kFloor);
}

TEST(PeerMemoryPlace, OfNoMemoryRefusesNothing) {
  PeerMemory::Place place;
  EXPECT_TRUE(place.grow(~uint64_t{0}));
  EXPECT_FALSE(place.is_crowded());
  place.shrink(1);
}

TEST(PeerMemoryBytes, TheUsualIsAShareOfTheMemory) {
  EXPECT_GE(PeerMemory::usual_bytes(), PeerMemory::kLeastBytes);
  EXPECT_LT(PeerMemory::usual_bytes(), uint64_t{1} << 46);
}

}  // namespace
}  // namespace tcpx
