#include "base/zero_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace tcpx::testing {
namespace {

/// A send that is over at once.
void pass(ZeroCopySends& sends, bool copied) {
  const auto number = static_cast<uint32_t>(sends.sent());
  sends.over(number, number, copied);
}

// The oracle keeps a flag for each send.
TEST(ZeroCopySends, AreOverInAnyOrderAndInRanges) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ZeroCopySends sends;
    std::vector<bool> over;
    std::vector<std::pair<uint32_t, uint32_t>> ranges;  // to be reported
    uint64_t unranged = 0;
    const auto check = [&] {
      const auto oldest = static_cast<uint64_t>(std::find(over.begin(), over.end(), false) - over.begin());
      for (uint64_t i = 0; i < over.size(); ++i) ASSERT_EQ(sends.is_over(i), i < oldest) << i;
      ASSERT_EQ(sends.all_over(), oldest == over.size());
    };
    for (int step = 0; step < 200; ++step) {
      if (random() % 2 == 0) {
        ASSERT_EQ(sends.sent(), over.size());
        over.push_back(false);
      }
      if (random() % 3 == 0 && unranged < over.size()) {
        const uint64_t count = 1 + random() % (over.size() - unranged);
        ranges.emplace_back(unranged, unranged + count - 1);
        unranged += count;
      }
      if (random() % 3 == 0 && !ranges.empty()) {
        const size_t which = random() % ranges.size();
        const auto [first, last] = ranges[which];
        ranges.erase(ranges.begin() + static_cast<std::ptrdiff_t>(which));
        sends.over(first, last, false);
        std::fill(over.begin() + first, over.begin() + last + 1, true);
      }
      check();
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ZeroCopySends, NumbersGoRound) {
  constexpr uint32_t kBefore = ~uint32_t{0} - 2;
  ZeroCopySends sends(kBefore);
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(sends.sent(), kBefore + i);
  sends.over(1, 2, false);  // the last two
  EXPECT_FALSE(sends.is_over(kBefore));
  sends.over(kBefore, kBefore, false);
  EXPECT_TRUE(sends.is_over(kBefore));
  EXPECT_FALSE(sends.is_over(kBefore + uint64_t{1}));
  sends.over(kBefore + 1, 0, false);  // across the end
  EXPECT_TRUE(sends.is_over(kBefore + uint64_t{5}));
  EXPECT_TRUE(sends.all_over());
}

TEST(ZeroCopySends, NumbersThatWereNotTakenChangeNothing) {
  ZeroCopySends sends;
  sends.sent();
  sends.over(0, 1, false);
  sends.over(7, 7, false);
  EXPECT_FALSE(sends.is_over(0));
  sends.over(0, 0, false);
  EXPECT_TRUE(sends.all_over());
  sends.over(0, 0, false);
  EXPECT_EQ(sends.sent(), 1u);
  EXPECT_FALSE(sends.is_over(1)) << "said twice";
}

TEST(ZeroCopySends, OnlyBadAnswersInARowEndIt) {
  ZeroCopySends sends;
  for (uint32_t i = 1; i < ZeroCopySends::kInVain; ++i) pass(sends, true);
  pass(sends, false);
  for (uint32_t i = 1; i < ZeroCopySends::kInVain; ++i) pass(sends, true);
  EXPECT_TRUE(sends.is_worth_it());
  pass(sends, true);
  EXPECT_FALSE(sends.is_worth_it());

  ZeroCopySends refused;
  for (uint32_t i = 1; i < ZeroCopySends::kInVain; ++i) refused.refused();
  pass(refused, false);
  for (uint32_t i = 1; i < ZeroCopySends::kInVain; ++i) refused.refused();
  EXPECT_TRUE(refused.is_worth_it());
  refused.refused();
  EXPECT_FALSE(refused.is_worth_it());
}

}  // namespace
}  // namespace tcpx::testing
