#include "net/repeated_lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using Lines = std::vector<std::string>;

constexpr char kFile[] = "net.cc", kFormat[] = "no free space", kOther[] = "%s is gone";

class RepeatedLinesTest : public ::testing::Test {
 protected:
  static TimePoint at(int ms) { return TimePoint(std::chrono::hours(1)) + milliseconds(ms); }
  bool admit(const LineSource& source, int ms, const std::string& text = "no free space") {
    const bool admitted = lines_.admit(source, at(ms), told_);
    if (admitted) lines_.remember(source, text);
    return admitted;
  }

  RepeatedLines lines_;
  Lines told_;
  const LineSource source_{kFile, 10, kFormat};
};

TEST_F(RepeatedLinesTest, A6_TheFirstIsLoggedTheRestAreCountedAndToldOnceASecond) {
  int logged = 0;
  for (int ms = 0; ms < 3500; ++ms) logged += admit(source_, ms) ? 1 : 0;
  EXPECT_EQ(logged, 1);
  EXPECT_EQ(told_, (Lines{"no free space (1000 times more in 1000 ms)", "no free space (1000 times more in 1000 ms)",
                          "no free space (1000 times more in 1000 ms)"}));
  told_.clear();
  lines_.tell_all(at(3600), told_);
  EXPECT_EQ(told_, Lines{"no free space (499 times more in 600 ms)"});
}

TEST_F(RepeatedLinesTest, A6_ALineFromElsewhereTellsACountThatIsDue) {
  EXPECT_TRUE(admit(source_, 0));
  EXPECT_FALSE(admit(source_, 5));
  const LineSource same_format_elsewhere{kFile, 11, kFormat};
  EXPECT_TRUE(admit(same_format_elsewhere, 500));
  EXPECT_EQ(told_, Lines{}) << "the second is not over";
  EXPECT_TRUE(admit({kFile, 10, kOther}, 2000));
  EXPECT_EQ(told_, Lines{"no free space (1 times more in 2000 ms)"});
  told_.clear();
  lines_.tell_due(at(9000), told_);
  EXPECT_EQ(told_, Lines{}) << "told once";
}

TEST_F(RepeatedLinesTest, A6_WhatComesNowAndThenIsLoggedEachTime) {
  for (int s = 0; s < 10; ++s) EXPECT_TRUE(admit(source_, 1000 * s)) << s;
  EXPECT_EQ(told_, Lines{});
}

TEST_F(RepeatedLinesTest, A6_MemoryIsBoundedAndNoCountIsLost) {
  EXPECT_TRUE(admit(source_, 0, std::string(5000, 'x')));
  EXPECT_FALSE(admit(source_, 1));
  for (int i = 0; i < static_cast<int>(RepeatedLines::kMostSources); ++i) EXPECT_TRUE(admit({kFile, 1000 + i, kFormat}, 2));
  EXPECT_EQ(told_, Lines{std::string(256, 'x') + " (1 times more in 2 ms)"}) << "the oldest made room";
  EXPECT_TRUE(admit(source_, 3)) << "it is new again";
}

TEST_F(RepeatedLinesTest, A6_ThreadsLoseNothing) {
  constexpr int kThreads = 4, kEach = 5000;
  std::atomic<int> logged = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Lines told;
      const LineSource own{kFile, i, kOther};
      for (int k = 0; k < kEach; ++k) {
        for (const LineSource& source : {source_, own}) {
          if (!lines_.admit(source, at(0), told)) continue;
          lines_.remember(source, "text");
          ++logged;
        }
      }
      EXPECT_EQ(told, Lines{});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(logged, 1 + kThreads);
  lines_.tell_all(at(10), told_);
  ASSERT_EQ(told_.size(), 1u + kThreads);
  EXPECT_EQ(std::count(told_.begin(), told_.end(), concat("text (", kThreads * kEach - 1, " times more in 10 ms)")), 1);
  EXPECT_EQ(std::count(told_.begin(), told_.end(), concat("text (", kEach - 1, " times more in 10 ms)")), kThreads);
}

}  // namespace
}  // namespace tcpx
