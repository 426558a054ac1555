// The time that a thread polls, under a clock and with interruptions of the test's making.
#include "base/spin_time.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/one_core.h"
#include "tests/support/threads.h"

namespace tcpx::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

uint64_t interruptions = 0;

class SpinTimeTest : public ::testing::Test {
 protected:
  SpinTimeTest() { interruptions = 0; }
  /// A thread that asks every millisecond, for so many, and that is interrupted so often in each 50.
  /// @return the milliseconds in which it was to poll
  int polls_in(int ms, uint64_t in_fifty) {
    int polls = 0;
    for (int i = 0; i < ms; ++i) {
      now_ += milliseconds(1);
      if (++passed_ % 50 == 0) interruptions += in_fifty;
      if (spin_.after(now_, now_) == milliseconds(1)) ++polls;
      EXPECT_EQ(spin_.is_crowded(now_), spin_.after(now_, now_) == Duration::zero());
    }
    return polls;
  }

  TimePoint now_{std::chrono::hours(1)};
  int passed_ = 0;
  SpinTime spin_{milliseconds(1), [] { return interruptions; }};
};

TEST(PollBriefly, TriesUntilItSucceedsOrForAWhile) {
  int tries = 0;
  EXPECT_TRUE(poll_briefly([&] { return ++tries == 3; }));
  EXPECT_EQ(tries, 3);
  EXPECT_FALSE(poll_briefly([] { return false; }));
}

TEST_F(SpinTimeTest, OnAFreeCoreItPolls) {
  EXPECT_EQ(polls_in(10'000, 0), 10'000);
  EXPECT_EQ(polls_in(10'000, SpinTime::kOften - 1), 10'000) << "the kernel has things to do, too";
}

TEST_F(SpinTimeTest, OnACoreThatOthersWantItSoonDoesNot) {
  EXPECT_LE(polls_in(200, SpinTime::kOften), 110);
  (void)polls_in(10'000, SpinTime::kOften);
  EXPECT_LE(polls_in(100'000, SpinTime::kOften), 2000);
}

TEST_F(SpinTimeTest, ItPollsAgainWhenTheOthersHaveGone) {
  (void)polls_in(20'000, 20);
  (void)polls_in(3300, 0);
  EXPECT_EQ(polls_in(1000, 0), 1000);
  // And the next time it is off the core it begins with a short pause again.
  EXPECT_LE(polls_in(150, 20), 110);
  EXPECT_GE(polls_in(200, 0), 80);
}

// It was interrupted while it did something else, perhaps hours ago.
TEST_F(SpinTimeTest, WhatWasBeforeALongSleepDoesNotCount) {
  (void)polls_in(100, 0);
  now_ += milliseconds(500);
  interruptions += 1000;
  EXPECT_EQ(polls_in(100, 0), 100);
}

// Work of so long that comes so long after the last one, a number of times.
// @return how long the thread is to poll after the last
Duration poll_after(SpinTime& spin, TimePoint& now, Duration pause, int times, Duration work = microseconds(300)) {
  Duration poll{};
  for (int i = 0; i < times; ++i) {
    const TimePoint found = now + pause;
    now = found + work;
    poll = spin.after(found, now);
  }
  return poll;
}

TEST_F(SpinTimeTest, AThreadWhoseWorkComesLaterPollsShortly) {
  EXPECT_EQ(poll_after(spin_, now_, milliseconds(2), 10), SpinTime::kShort);
  EXPECT_EQ(poll_after(spin_, now_, SpinTime::kShort, 1000), SpinTime::kShort) << "what a short poll finds says nothing of long ones";
  EXPECT_EQ(poll_after(spin_, now_, microseconds(900), 10), milliseconds(1)) << "a long poll would find it";
  EXPECT_EQ(poll_after(spin_, now_, milliseconds(2), 1), milliseconds(1)) << "now and then it comes late";
}

TEST_F(SpinTimeTest, OneThatIsToPollLessThanShortlyDoes) {
  SpinTime brief(microseconds(10), [] { return interruptions; });
  EXPECT_EQ(poll_after(brief, now_, microseconds(5), 10), microseconds(10));
  EXPECT_EQ(poll_after(brief, now_, milliseconds(5), 10), microseconds(10));
}

TEST_F(SpinTimeTest, WhoLosesASliceStopsAtOnceAndTriesAgainLater) {
  spin_.yielded(now_, now_ + std::chrono::microseconds(900));
  EXPECT_FALSE(spin_.is_crowded(now_));
  spin_.yielded(now_, now_ + milliseconds(1));
  EXPECT_TRUE(spin_.is_crowded(now_));
  EXPECT_TRUE(spin_.is_crowded(now_ + SpinTime::kShortestPause));
  now_ += milliseconds(1) + SpinTime::kShortestPause;
  EXPECT_FALSE(spin_.is_crowded(now_));
  spin_.yielded(now_, now_ + milliseconds(3));
  EXPECT_TRUE(spin_.is_crowded(now_ + 2 * SpinTime::kShortestPause)) << "twice as long the next time";
}

TEST_F(SpinTimeTest, OneThatIsNotToPollAsksNobody) {
  SpinTime none(Duration::zero(), []() -> uint64_t {
    ADD_FAILURE();
    return 0;
  });
  EXPECT_EQ(none.after(now_, now_), Duration::zero());
  EXPECT_FALSE(none.is_crowded(now_)) << "it does not know";
}

// The count that it goes by: two threads on one core take turns.
TEST(Interruptions, ThreadsThatShareACoreAreInterrupted) {
  constexpr int kThreads = 2;
  std::atomic<int> interrupted{0};
  run_together(kThreads, [&](size_t) {
    ASSERT_NO_FATAL_FAILURE(run_on_first_core());
    const uint64_t before = count_interruptions();
    const Deadline long_enough = Deadline::after(std::chrono::seconds(20));
    bool counted = false;
    while (interrupted < kThreads && !long_enough.expired()) {
      if (!counted && count_interruptions() >= before + SpinTime::kOften) {
        counted = true;
        ++interrupted;
      }
    }
  });
  EXPECT_EQ(interrupted, kThreads);
}

}  // namespace
}  // namespace tcpx::testing
