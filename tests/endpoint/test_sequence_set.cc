#include "endpoint/sequence_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tcpx {
namespace {

TEST(SequenceSet, NeighboursAreOneInterval) {
  SequenceSet set;
  for (const uint64_t sequence : {5, 7, 6, 4, 9, 8}) set.insert(sequence);
  EXPECT_EQ(set.intervals(), 1u);
  EXPECT_FALSE(set.contains(3));
  EXPECT_TRUE(set.contains(4) && set.contains(9));
  EXPECT_FALSE(set.contains(10));
  EXPECT_TRUE(set.erase(6));
  EXPECT_EQ(set.intervals(), 2u);
  EXPECT_FALSE(set.erase(6));
}

TEST(SequenceSet, TheLargestNumbersWrapNowhere) {
  SequenceSet set;
  set.insert(~uint64_t{0});
  set.insert(0);
  EXPECT_EQ(set.intervals(), 2u);
  set.insert(~uint64_t{0} - 1);
  EXPECT_EQ(set.intervals(), 2u);
  EXPECT_TRUE(set.erase(~uint64_t{0}));
  EXPECT_TRUE(set.erase(0));
  EXPECT_TRUE(set.contains(~uint64_t{0} - 1));
  EXPECT_EQ(set.intervals(), 1u);
}

TEST(SequenceSet, HoldsWhatASetHolds) {
  std::mt19937 random(3);
  SequenceSet set;
  std::set<uint64_t> expected;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t sequence = random() % 200;
    if (random() % 2 == 0) {
      set.insert(sequence);
      expected.insert(sequence);
    } else {
      ASSERT_EQ(set.erase(sequence), expected.erase(sequence) == 1);
    }
    const uint64_t asked = random() % 202;
    ASSERT_EQ(set.contains(asked), expected.contains(asked));
  }
  size_t intervals = 0;
  for (const uint64_t sequence : expected) intervals += expected.contains(sequence - 1) ? 0 : 1;
  EXPECT_EQ(set.intervals(), intervals);
}

}  // namespace
}  // namespace tcpx
