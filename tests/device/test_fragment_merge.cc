#include "device/fragment_merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "tests/support/count_allocations.h"

namespace tcpx {
namespace {

std::vector<Fragment> merged(const std::vector<Fragment>& list) {
  std::vector<Fragment> out;
  merge_fragments(list, out);
  return out;
}

TEST(FragmentMerge, JoinsNeighboursInSourceAndDestination) {
  EXPECT_EQ(merged({{0, 10, 0}, {10, 20, 10}, {30, 5, 30}}), (std::vector<Fragment>{{0, 35, 0}}));
}

TEST(FragmentMerge, KeepsApartWhatIsAdjacentOnOneSideOnly) {
  const std::vector<Fragment> gap_in_source{{0, 10, 0}, {11, 10, 10}};
  EXPECT_EQ(merged(gap_in_source), gap_in_source);
  const std::vector<Fragment> gap_in_destination{{0, 10, 0}, {10, 10, 11}};
  EXPECT_EQ(merged(gap_in_destination), gap_in_destination);
  const std::vector<Fragment> same_source{{0, 10, 0}, {0, 10, 10}};
  EXPECT_EQ(merged(same_source), same_source);
}

TEST(FragmentMerge, FindsNeighboursInAnyOrderOfTheList) {
  EXPECT_EQ(merged({{4096, 4096, 4096}, {100, 8, 8192}, {0, 4096, 0}}), (std::vector<Fragment>{{0, 8192, 0}, {100, 8, 8192}}));
}

TEST(FragmentMerge, EmptyStaysEmpty) {
  std::vector<Fragment> out{{1, 2, 3}};
  merge_fragments({}, out);
  EXPECT_TRUE(out.empty());
}

TEST(FragmentMerge, DoesNotWrapLengthsOrOffsets) {
  constexpr uint32_t kHalf = 1u << 31;
  const std::vector<Fragment> four_gib{{0, kHalf, 0}, {kHalf, kHalf, kHalf}};
  EXPECT_EQ(merged(four_gib), four_gib) << "the length would not fit 32 bits";
  EXPECT_EQ(merged({{0, kHalf, 0}, {kHalf, kHalf - 1, kHalf}}), (std::vector<Fragment>{{0, 2 * kHalf - 1, 0}}));
  const std::vector<Fragment> end_of_pool{{0xfffffff0u, 16, 0}, {0, 16, 16}};
  EXPECT_EQ(merged(end_of_pool), end_of_pool) << "offset 0 does not follow the last byte of a 4 GiB pool";
  constexpr uint64_t kFar = uint64_t{5} << 32;
  EXPECT_EQ(merged({{0, 8, kFar}, {8, 8, kFar + 8}}), (std::vector<Fragment>{{0, 16, kFar}}));
}

TEST(FragmentMerge, RandomListsMeanTheSameBytes) {
  std::mt19937 random(1);
  std::vector<Fragment> out;
  out.reserve(kMaxFragments);
  for (int round = 0; round < 200; ++round) {
    // Tiles of the destination, some of them following their neighbour in the source, in random order.
    std::vector<Fragment> list;
    uint64_t dst_off = 0;
    uint32_t src_off = 0;
    const size_t count = random() % 64;
    while (list.size() < count) {
      const uint32_t len = 1 + random() % 9;
      if (random() % 2 == 0) src_off = random() % 1000;
      list.push_back({src_off, len, dst_off});
      src_off += len;
      dst_off += len;
    }
    const auto source_of_bytes = [&](const std::vector<Fragment>& fragments) {
      std::vector<int64_t> source(dst_off, -1);
      for (const Fragment& f : fragments) {
        for (uint32_t i = 0; i < f.len; ++i) source[f.dst_off + i] = int64_t{f.src_off} + i;
      }
      return source;
    };
    const std::vector<int64_t> wanted = source_of_bytes(list);
    std::shuffle(list.begin(), list.end(), random);
    const uint64_t allocations = testing::allocation_count();
    merge_fragments(list, out);
    EXPECT_EQ(testing::allocation_count(), allocations);
    EXPECT_EQ(source_of_bytes(out), wanted);
    for (size_t i = 1; i < out.size(); ++i) {
      EXPECT_NE(std::pair(out[i - 1].src_off + out[i - 1].len, out[i - 1].dst_off + out[i - 1].len),
                std::pair(out[i].src_off, out[i].dst_off))
          << "neighbours left apart";
    }
  }
}

}  // namespace
}  // namespace tcpx
