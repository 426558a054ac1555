// Random tilings under many secrets, single corruptions against a byte map, and the power of a known secret.
#include "rx/tiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "tests/support/byte_map.h"
#include "tests/support/count_allocations.h"

namespace tcpx {
namespace {

using testing::tiles_by_byte_map;

using List = std::vector<Fragment>;

/// A fragment from every one of `cuts` to the next; the first is 0, the last the end of the message.
List between(const std::set<uint64_t>& cuts) {
  List list;
  for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at)
    list.push_back({0, static_cast<uint32_t>(*std::next(at) - *at), *at});
  return list;
}

List random_tiling(size_t count, uint64_t message_bytes, std::mt19937_64& random) {
  std::set<uint64_t> cuts{0, message_bytes};
  while (cuts.size() <= count) cuts.insert(random() % message_bytes);
  List list = between(cuts);
  std::shuffle(list.begin(), list.end(), random);
  return list;
}

/// Preconditions of proves_tiling.
bool nonempty_and_sums_up(const List& list, uint64_t message_bytes) {
  const auto add = [](uint64_t sum, const Fragment& f) { return sum + f.len; };
  return std::accumulate(list.begin(), list.end(), uint64_t{0}, add) == message_bytes &&
         std::none_of(list.begin(), list.end(), [](const Fragment& f) { return f.len == 0; });
}

TEST(Tiling, SmallestLists) {
  EXPECT_TRUE(proves_tiling({}, 0, 1));
  EXPECT_TRUE(proves_tiling(List{{0, 1, 0}}, 1, 1));
  EXPECT_FALSE(proves_tiling(List{{0, 1, 1}}, 1, 1));
  EXPECT_FALSE(proves_tiling(List{{0, 1, ~uint64_t{0}}}, 1, 1));
  EXPECT_TRUE(proves_tiling(List{{0, 1, 1}, {0, 1, 0}}, 2, 1));
  EXPECT_FALSE(proves_tiling(List{{0, 1, 0}, {0, 1, 0}}, 2, 1));
  EXPECT_FALSE(proves_tiling(List{{0, 1, 1}, {0, 1, 1}}, 2, 1));
}

TEST(Tiling, EveryTilingIsProvedWhateverTheOrderAndTheSecret) {
  std::mt19937_64 random(1);
  for (const uint64_t secret : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, random(), random(), random(), random(), random()}) {
    for (const size_t count : {2, 3, 4, 5, 100, 127, 128, 129, 1023, 1024, 2047, 2048}) {
      for (const uint64_t message_bytes : {uint64_t{count}, uint64_t{4} << 20, kMaxMessageBytes}) {
        SCOPED_TRACE(::testing::Message() << count << " fragments of " << message_bytes << " bytes, secret " << secret);
        List list = random_tiling(count, message_bytes, random);
        EXPECT_TRUE(proves_tiling(list, message_bytes, secret));
        std::sort(list.begin(), list.end(), [](const Fragment& a, const Fragment& b) { return a.dst_off > b.dst_off; });
        EXPECT_TRUE(proves_tiling(list, message_bytes, secret));
      }
      for (const uint32_t step : {1u, 8u, 53u, 64u, 1448u, 4096u, 8192u, 1u << 16, 1u << 20}) {
        SCOPED_TRACE(::testing::Message() << count << " fragments of " << step << " bytes each, secret " << secret);
        List list;
        for (size_t i = count; i-- > 0;) list.push_back({0, step, i * step});
        EXPECT_TRUE(proves_tiling(list, count * step, secret));
      }
    }
  }
}

// Every corruption keeps the sum of the lengths, so that only the tiling itself can reveal it.
TEST(Tiling, CorruptionsAreProvedExactlyWhenTheByteMapAllowsThem) {
  std::mt19937_64 random(2);
  int tiling_count = 0, other_count = 0;
  for (int round = 0; round < 40000; ++round) {
    SCOPED_TRACE(round);
    const size_t count = 2 + random() % 14;  // too few for one slot
    const uint64_t message_bytes = count + random() % 60;
    List list = random_tiling(count, message_bytes, random);
    Fragment& one = list[random() % count];
    Fragment& other = list[random() % count];
    switch (random() % 6) {
      case 0:
        one.dst_off += random() % 5 - 2;
        break;
      case 1:
        std::swap(one.len, other.len);
        break;
      case 2:
        std::swap(one.dst_off, other.dst_off);
        break;
      case 3:
        one.dst_off = other.dst_off;
        break;
      case 4:
        if (&one == &other || one.len == 1) break;
        --one.len;
        ++other.len;
        break;
      case 5:
        one.dst_off = uint64_t{0} - one.len + random() % 3;  // ends around 2^64
        break;
    }
    ASSERT_TRUE(nonempty_and_sums_up(list, message_bytes));
    const bool tiles = tiles_by_byte_map(list, message_bytes);
    ASSERT_EQ(proves_tiling(list, message_bytes, random()), tiles);
    ++(tiles ? tiling_count : other_count);
  }
  EXPECT_GT(tiling_count, 4000);
  EXPECT_GT(other_count, 20000);
}

TEST(Tiling, OneCorruptionInALongListIsSeen) {
  std::mt19937_64 random(3);
  const uint64_t message_bytes = kMaxRequestBytes;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    List list = random_tiling(kMaxFragments, message_bytes, random);
    const uint64_t secret = random();
    ASSERT_TRUE(proves_tiling(list, message_bytes, secret));
    Fragment& f = list[random() % list.size()];
    const Fragment good = f;
    f.dst_off += 1;
    EXPECT_FALSE(proves_tiling(list, message_bytes, secret));
    f.dst_off = good.dst_off ^ uint64_t { 1 } << (32 + random() % 32);  // right in the lower half
    EXPECT_FALSE(proves_tiling(list, message_bytes, secret));
    f = good;
    Fragment& g = list[random() % list.size()];
    if (f.len == g.len) continue;
    std::swap(f.len, g.len);
    EXPECT_FALSE(proves_tiling(list, message_bytes, secret));
  }
}

// Two covers of one half of the message have the right sum, and after every fragment another one begins or the half ends.
TEST(Tiling, TwoCoversOfOneHalfAreNotOneOfTheWhole) {
  std::mt19937_64 random(4);
  const uint64_t half = 1 << 20;
  for (int round = 0; round < 50; ++round) {
    List list = random_tiling(100, half, random);
    const List lower = list;
    list.insert(list.end(), lower.begin(), lower.end());
    EXPECT_FALSE(proves_tiling(list, 2 * half, random()));
    for (Fragment& f : list) f.dst_off += half;  // and two of the upper one
    EXPECT_FALSE(proves_tiling(list, 2 * half, random()));
    for (size_t i = 0; i < lower.size(); ++i) list[i].dst_off -= half;  // one of each
    EXPECT_TRUE(proves_tiling(list, 2 * half, random()));
  }
}

// Knowledge of the secret allows filling one slot. That costs a bounded number of rounds, and another secret undoes it.
TEST(Tiling, FullSlotIsGivenUpAndNotTakenForATiling) {
  constexpr uint64_t kSecret = 12345;
  const auto slot = [](uint64_t off) { return tiling_slot(off, kSecret, 14); };
  std::set<uint64_t> cuts{0};
  uint64_t off = 0;
  while (cuts.size() < 40) {
    if (slot(++off) == slot(0)) cuts.insert(off);  // for 14 bits, so in every smaller table as well
  }
  const List list = between(cuts);
  ASSERT_TRUE(tiles_by_byte_map(list, off));
  EXPECT_FALSE(proves_tiling(list, off, kSecret));
  EXPECT_TRUE(proves_tiling(list, off, kSecret + 1));
}

TEST(Tiling, SlotsAreEvenlyUsedByWhatListsLookLike) {
  std::mt19937_64 random(6);
  for (const uint64_t step : {1u, 8u, 1448u, 2048u, 4096u, 8192u, 65536u}) {
    for (int round = 0; round < 200; ++round) {
      const uint64_t secret = random();
      std::vector<int> fill(8192);
      for (uint64_t i = 0; i < 2048; ++i) {
        const uint32_t slot = tiling_slot(i * step, secret, 13);
        ASSERT_LT(slot, fill.size());
        ++fill[slot];
      }
      EXPECT_LE(*std::max_element(fill.begin(), fill.end()), 12) << "step " << step << ", secret " << secret;
    }
  }
}

TEST(Tiling, NothingIsAllocated) {
  std::mt19937_64 random(5);
  const List list = random_tiling(kMaxFragments, kMaxRequestBytes, random);
  const uint64_t before = testing::allocation_count();
  const bool proved = proves_tiling(list, kMaxRequestBytes, 7);
  const uint64_t after = testing::allocation_count();
  EXPECT_TRUE(proved);
  EXPECT_EQ(after, before);
  EXPECT_GT(before, 0u);
}

}  // namespace
}  // namespace tcpx
