#include "base/crowd_log.h"

#include "tests/support/expect_log.h"
#include "tests/support/manual_clock.h"

namespace tcpx::testing {
namespace {

TEST(CrowdLog, ACrowdGetsALinePerSecondAndIsCounted) {
  allow_log("stranger");
  ManualClock clock;
  CrowdLog crowd;
  int count = 0;
  const auto come = [&] {
    const int number = ++count;
    crowd.warn(clock.now(), "stranger ", number, ".");
    return logged(concat("stranger ", number, "."));
  };
  for (int i = 0; i < CrowdLog::kBurst; ++i) ASSERT_TRUE(come()) << i;
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(come()) << i;
  clock.advance(std::chrono::milliseconds(999));
  EXPECT_FALSE(come());
  clock.advance(std::chrono::milliseconds(1));
  EXPECT_TRUE(come());
  EXPECT_TRUE(logged(". (before it 1001 warnings were left out)"));
  EXPECT_FALSE(come());
  clock.advance(std::chrono::hours(1));
  for (int i = 0; i < CrowdLog::kBurst; ++i) ASSERT_TRUE(come()) << "after a quiet hour, " << i;
  EXPECT_FALSE(come());
}

}  // namespace
}  // namespace tcpx::testing
