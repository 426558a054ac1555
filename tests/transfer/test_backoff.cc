// Spinning, yielding and sleeping of a loop that drives connections.
#include "transfer/backoff.h"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>

namespace tcpx {
namespace {

using Step = Backoff::Step;

/// Number of turns of each kind before the first sleep.
std::pair<uint32_t, uint32_t> spins_and_yields(Backoff& backoff, bool much_under_way) {
  uint32_t spins = 0, yields = 0;
  for (Step step; (step = backoff.next(much_under_way)) != Step::kSleep;) ++(step == Step::kSpin ? spins : yields);
  return {spins, yields};
}

TEST(Backoff, SpinsThenYieldsThenSleepsUntilSomethingAdvances) {
  Backoff backoff(16);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(spins_and_yields(backoff, false), std::pair(Backoff::kSpins, Backoff::kYields));
    EXPECT_EQ(backoff.next(false), Step::kSleep);
    backoff.reset();
  }
}

TEST(Backoff, LeavesFewCoresToThoseWhoMoveMuch) {
  Backoff backoff(2);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(spins_and_yields(backoff, true), std::pair(Backoff::kSpinsOnFewCores, 0u));
    EXPECT_EQ(backoff.next(true), Step::kSleep);
    backoff.reset();
  }
  EXPECT_EQ(spins_and_yields(backoff, false), std::pair(Backoff::kSpins, Backoff::kYields));  // a sleep would be noticed
}

TEST(Backoff, KeepsPollingWhereThereIsACoreForEach) {
  for (const uint32_t cores : {0u, 4u, 128u}) {
    Backoff backoff(cores);
    EXPECT_EQ(spins_and_yields(backoff, true), std::pair(Backoff::kSpins, Backoff::kYields)) << cores;
  }
  for (const uint32_t cores : {1u, 2u, 3u}) EXPECT_TRUE(cores_are_few(cores));
}

TEST(Backoff, LeavesACoreToOthersWhoWantItWhileMuchIsUnderWay) {
  Backoff backoff(16);
  for (uint32_t i = 0; i < Backoff::kSpinsOnFewCores; ++i) EXPECT_EQ(backoff.next(true, true), Step::kSpin);
  EXPECT_EQ(backoff.next(true, true), Step::kSleep);
  EXPECT_EQ(backoff.next(true, false), Step::kSpin) << "they have gone";
  EXPECT_EQ(backoff.next(false, true), Step::kSpin) << "a sleep would be noticed";
}

TEST(Backoff, SleepsLongerWhileMuchIsUnderWayAndNothingComes) {
  Backoff backoff(2);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(backoff.pause(false), Backoff::kSleep);
    EXPECT_EQ(backoff.pause(false), Backoff::kSleep);
    std::chrono::microseconds expected = Backoff::kSleep, slept{0};
    for (int i = 0; i < 7; ++i, expected *= 2) {
      const auto pause = backoff.pause(true);
      EXPECT_EQ(pause, expected);
      EXPECT_LE(pause, slept + Backoff::kSleep);  // never later than the time it has waited
      slept += pause;
    }
    EXPECT_EQ(backoff.pause(true), Backoff::kLongestSleep);
    EXPECT_EQ(backoff.pause(false), Backoff::kSleep);
    backoff.reset();
  }
}

}  // namespace
}  // namespace tcpx
