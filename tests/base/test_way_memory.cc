// What is remembered of the ways to a peer, and for how long.
#include "base/way_memory.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/manual_clock.h"

namespace tcpx::testing {
namespace {

class WayMemoryTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  WayMemory memory_{clock_};
};

TEST_F(WayMemoryTest, ASilentWayLeadsNowhereUntilItAnswers) {
  EXPECT_FALSE(memory_.leads_nowhere("a"));
  memory_.was_silent("a");
  EXPECT_TRUE(memory_.leads_nowhere("a"));
  EXPECT_FALSE(memory_.leads_nowhere("b"));
  memory_.has_answered("a");
  EXPECT_FALSE(memory_.leads_nowhere("a"));
}

TEST_F(WayMemoryTest, OneLostPacketDoesNotRuinAGoodWay) {
  memory_.has_answered("a");
  memory_.was_silent("a");
  EXPECT_FALSE(memory_.leads_nowhere("a"));
  memory_.was_silent("a");
  EXPECT_TRUE(memory_.leads_nowhere("a"));
}

TEST_F(WayMemoryTest, NothingIsRememberedForEver) {
  memory_.was_silent("a");
  memory_.has_answered("b");
  clock_.advance(WayMemory::kRemembered - Duration(1));
  EXPECT_TRUE(memory_.leads_nowhere("a"));
  clock_.advance(Duration(1));
  EXPECT_FALSE(memory_.leads_nowhere("a"));
  memory_.was_silent("b");
  EXPECT_TRUE(memory_.leads_nowhere("b")) << "that it was good is long ago";
}

TEST_F(WayMemoryTest, OfTooManyTheOldestIsForgotten) {
  memory_.was_silent("z");
  for (size_t i = 1; i < WayMemory::kMostWays; ++i) {
    clock_.advance(Duration(1));
    memory_.was_silent(concat("a", i));
  }
  clock_.advance(Duration(1));
  EXPECT_TRUE(memory_.leads_nowhere("z"));
  memory_.was_silent("b");
  EXPECT_FALSE(memory_.leads_nowhere("z"));
  EXPECT_TRUE(memory_.leads_nowhere("a1"));
  EXPECT_TRUE(memory_.leads_nowhere("b"));
}

}  // namespace
}  // namespace tcpx::testing
