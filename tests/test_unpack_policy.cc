#include "device/unpack_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tcpx/types.h"

namespace tcpx {
namespace {

constexpr uint32_t kBudget = 132;

UnpackShape pages(uint32_t count, uint32_t page_bytes = kPageBytes) {
  return UnpackShape{count, uint64_t{count} * page_bytes, page_bytes, AlignmentClass::kCongruent, PoolMemory::kDevice};
}

TEST(UnpackPolicy, LaunchesNothingForNothing) {
  EXPECT_EQ(choose_launch_policy(pages(0), kBudget).blocks, 0u);
}

TEST(UnpackPolicy, GivesEachPageOneWarpWhileBlocksLast) {
  const LaunchPolicy policy = choose_launch_policy(pages(128), kBudget);
  EXPECT_EQ(policy, (LaunchPolicy{128 / kBlockWarps, kBlockThreads, 1, AlignmentClass::kCongruent}));
  EXPECT_EQ(choose_launch_policy(pages(129), kBudget).blocks, 128 / kBlockWarps + 1) << "a started block counts";
  EXPECT_EQ(choose_launch_policy(pages(1, 1), kBudget).blocks, 1u);
}

TEST(UnpackPolicy, NeverExceedsTheBudget) {
  for (const uint32_t budget : {1u, 4u, 16u, 132u}) {
    EXPECT_EQ(choose_launch_policy(pages(kMaxFragments), budget).blocks, std::min(budget, kMaxFragments / kBlockWarps));
  }
}

TEST(UnpackPolicy, LeavesTheGpuAloneWhereTheBusIsTheLimit) {
  UnpackShape shape = pages(kMaxFragments);
  shape.pool = PoolMemory::kMappedHost;
  EXPECT_EQ(choose_launch_policy(shape, kBudget).blocks, kMappedHostBlocks);
  EXPECT_EQ(choose_launch_policy(shape, 4).blocks, 4u) << "the budget still holds";
}

TEST(UnpackPolicy, SharesLongFragmentsAmongWarps) {
  const LaunchPolicy one = choose_launch_policy(pages(1, kMaxRequestBytes), kBudget);
  EXPECT_EQ(one.pieces_per_fragment, kMaxRequestBytes / kPieceBytes);
  EXPECT_EQ(one.blocks, kMaxRequestBytes / kPieceBytes / kBlockWarps);
  EXPECT_EQ(choose_launch_policy(pages(4, kPieceBytes + 1), kBudget).pieces_per_fragment, 2u);
}

TEST(UnpackPolicy, BoundsThePiecesOfALaunch) {
  for (const uint32_t count : {1u, 2u, 100u, kMaxFragments}) {
    UnpackShape shape = pages(count);
    shape.longest_bytes = std::numeric_limits<uint32_t>::max();
    shape.bytes += shape.longest_bytes;
    const LaunchPolicy policy = choose_launch_policy(shape, kBudget);
    EXPECT_LE(uint64_t{policy.pieces_per_fragment} * count, kMaxPieces);
    EXPECT_GE(policy.pieces_per_fragment, 1u);
    EXPECT_EQ(policy.blocks, kBudget);
  }
}

TEST(UnpackPolicy, PassesTheAlignmentClassOn) {
  UnpackShape shape = pages(16);
  shape.alignment = AlignmentClass::kMixed;
  EXPECT_EQ(choose_launch_policy(shape, kBudget).alignment, AlignmentClass::kMixed);
}

}  // namespace
}  // namespace tcpx
