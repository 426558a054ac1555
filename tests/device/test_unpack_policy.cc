#include "device/unpack_policy.h"

#include <gtest/gtest.h>

#include <limits>

#include "tcpx/types.h"

namespace tcpx {
namespace {

constexpr uint32_t kNoCap = 0;

UnpackShape list_of(uint32_t count, uint32_t bytes_each, AlignmentClass alignment = AlignmentClass::kCongruent) {
  return UnpackShape{count, uint64_t{count} * bytes_each, bytes_each, alignment, PoolMemory::kDevice};
}

uint64_t pieces(const UnpackShape& shape, const LaunchPolicy& policy) {
  return uint64_t{shape.fragment_count} << policy.pieces_log2;
}

uint64_t warps(const LaunchPolicy& policy) {
  return uint64_t{policy.blocks} * policy.threads / kWarpThreads;
}

TEST(UnpackPolicy, LaunchesNothingForNothing) {
  EXPECT_EQ(choose_launch_policy(list_of(0, 4096), kNoCap).blocks, 0u);
}

TEST(UnpackPolicy, ChoosesTheKernelByLengthAndAlignment) {
  EXPECT_EQ(choose_launch_policy(list_of(1024, 4096), kNoCap).kernel, UnpackKernel::kPages);
  EXPECT_EQ(choose_launch_policy(list_of(1024, 4096, AlignmentClass::kMixed), kNoCap).kernel, UnpackKernel::kShiftedPages);
  EXPECT_EQ(choose_launch_policy(list_of(1024, 1448), kNoCap).kernel, UnpackKernel::kSegments);
  EXPECT_EQ(choose_launch_policy(list_of(1024, 1448, AlignmentClass::kMixed), kNoCap).kernel, UnpackKernel::kSegments);
  EXPECT_EQ(choose_launch_policy(list_of(1024, kSegmentBytes), kNoCap).kernel, UnpackKernel::kSegments);
  EXPECT_EQ(choose_launch_policy(list_of(1024, kSegmentBytes + 1), kNoCap).kernel, UnpackKernel::kPages);
}

TEST(UnpackPolicy, CutsPagesAndLongerFragmentsIntoPieces) {
  EXPECT_EQ(choose_launch_policy(list_of(128, 4096), kNoCap).pieces_log2, 2u);
  EXPECT_EQ(choose_launch_policy(list_of(128, 4097), kNoCap).pieces_log2, 3u);
  EXPECT_EQ(choose_launch_policy(list_of(128, 4096, AlignmentClass::kMixed), kNoCap).pieces_log2, 0u);
  EXPECT_EQ(choose_launch_policy(list_of(1, kMaxRequestBytes), kNoCap).pieces_log2, 12u);
  EXPECT_EQ(choose_launch_policy(list_of(1, kMaxRequestBytes, AlignmentClass::kMixed), kNoCap).pieces_log2, 10u);
}

TEST(UnpackPolicy, TilesCoverEveryPieceAndNoBlockIsIdle) {
  for (const uint32_t count : {1u, 2u, 15u, 16u, 17u, 128u, 2048u, 16384u, 46346u, 131072u}) {
    for (const uint32_t bytes : {1u, 64u, 1448u, 1537u, 4096u, 65536u}) {
      for (const AlignmentClass alignment : {AlignmentClass::kCongruent, AlignmentClass::kMixed}) {
        const UnpackShape shape = list_of(count, bytes, alignment);
        const LaunchPolicy policy = choose_launch_policy(shape, kNoCap);
        SCOPED_TRACE(::testing::Message() << count << " x " << bytes);
        EXPECT_EQ(policy.threads, threads_of(policy.kernel));
        EXPECT_GE(warps(policy) * policy.pieces_per_warp, pieces(shape, policy));
        EXPECT_LT((warps(policy) - policy.threads / kWarpThreads) * policy.pieces_per_warp, pieces(shape, policy));
        EXPECT_LE(policy.pieces_per_warp, kMaxPiecesPerWarp);
      }
    }
  }
}

TEST(UnpackPolicy, KeepsWithinTheBudget) {
  for (const uint32_t budget : {1u, 4u, 16u, 132u}) {
    for (const uint32_t count : {1u, 100u, 2048u, 131072u}) {
      const LaunchPolicy policy = choose_launch_policy(list_of(count, 4096), budget);
      EXPECT_LE(policy.blocks, budget);
      EXPECT_GE(policy.blocks, 1u);
    }
  }
  EXPECT_EQ(choose_launch_policy(list_of(2048, 4096), 4), (LaunchPolicy{UnpackKernel::kFewBlocks, 4, 1024, 0, 4}));
  const LaunchPolicy free = choose_launch_policy(list_of(64, 4096), kNoCap);
  EXPECT_EQ(choose_launch_policy(list_of(64, 4096), free.blocks), free) << "a budget that is not exceeded changes nothing";
}

TEST(UnpackPolicy, GroupsPiecesOnlyWhenEveryWarpHasWork) {
  EXPECT_EQ(choose_launch_policy(list_of(64, 4096), 2), (LaunchPolicy{UnpackKernel::kFewBlocks, 2, 1024, 0, 1}));
  EXPECT_EQ(choose_launch_policy(list_of(127, 4096), 2).pieces_per_warp, 1u);
  EXPECT_EQ(choose_launch_policy(list_of(128, 4096), 2).pieces_per_warp, 2u);
}

TEST(UnpackPolicy, LeavesTheGpuAloneWhereTheBusIsTheLimit) {
  UnpackShape shape = list_of(kMaxFragments, 4096);
  shape.pool = PoolMemory::kMappedHost;
  EXPECT_EQ(choose_launch_policy(shape, kNoCap).blocks, kMappedHostBlocks);
  EXPECT_EQ(choose_launch_policy(shape, 4).blocks, 4u) << "the budget still holds";
  EXPECT_EQ(choose_launch_policy(shape, 1000).blocks, kMappedHostBlocks);
}

TEST(UnpackPolicy, BoundsThePiecesOfALaunch) {
  for (const uint32_t count : {1u, 2u, 100u, 2048u, 131072u}) {
    for (const PoolMemory pool : {PoolMemory::kDevice, PoolMemory::kMappedHost}) {
      UnpackShape shape = list_of(count, 1448);
      shape.pool = pool;
      shape.longest_bytes = std::numeric_limits<uint32_t>::max();
      shape.bytes += shape.longest_bytes;
      const LaunchPolicy policy = choose_launch_policy(shape, kNoCap);
      EXPECT_LE(pieces(shape, policy), std::numeric_limits<uint32_t>::max());
      EXPECT_LE(pieces(shape, policy), 4 * (shape.bytes / piece_bytes_of(policy.kernel) + count)) << "most would be empty";
      EXPECT_GE(policy.blocks, 1u);
    }
  }
}

}  // namespace
}  // namespace tcpx
