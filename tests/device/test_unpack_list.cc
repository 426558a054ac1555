// The list of one launch, as the host writes it. Addresses are only used in arithmetic, so no memory is needed there.
#include "device/unpack_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/count_allocations.h"

namespace tcpx::testing {
namespace {

std::byte* address(uint64_t value) {
  return reinterpret_cast<std::byte*>(value);
}

constexpr uint64_t kPool = uint64_t{1} << 40;
constexpr uint64_t kDestination = uint64_t{3} << 40;

DescriptorBlock block_of(const std::vector<Fragment>& list, uint64_t pool = kPool, uint64_t destination = kDestination) {
  uint64_t bytes = 0;
  for (const Fragment& fragment : list) bytes += fragment.len;
  DescriptorBlock block;
  const Status built = block.build(list, bytes, {address(pool), kMaxPoolBytes, address(destination), uint64_t{1} << 40});
  EXPECT_TRUE(built.is_ok()) << built.to_string();
  return block;
}

TEST(UnpackList, FragmentsOfAllBlocksStandInOrderWithTheirAddresses) {
  const std::vector<DescriptorBlock> blocks = {block_of({{4096, 10, 7}, {0xffff0000, 7, 0}}), block_of({}),
                                               block_of({{1, 2000, 0}}, kPool, kDestination + 5)};
  std::vector<KernelFragment> list(4, KernelFragment{77, 78, nullptr});
  const UnpackShape shape = write_list(leading_run(blocks), list.data(), PoolMemory::kMappedHost);
  EXPECT_EQ(shape.fragment_count, 3u);
  EXPECT_EQ(shape.bytes, 2017u);
  EXPECT_EQ(shape.longest_bytes, 2000u);
  EXPECT_EQ(shape.pool, PoolMemory::kMappedHost);
  const std::vector<KernelFragment> expected = {{4096, 10, address(kDestination + 7)},
                                                {0xffff0000, 7, address(kDestination)},
                                                {1, 2000, address(kDestination + 5)},
                                                {77, 78, nullptr}};
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].src_off, expected[i].src_off) << i;
    EXPECT_EQ(list[i].len, expected[i].len) << i;
    EXPECT_EQ(list[i].destination, expected[i].destination) << i;
  }
}

TEST(UnpackList, DestinationsKeepAllTheirBits) {
  constexpr uint64_t kBase = kDestination + 0xc0000001;  // the last two fragments lie beyond a multiple of 4 GiB
  const DescriptorBlock block = block_of({{0, 0x40000000, 0}, {9, 0x40000001, 0x40000000}, {0, 1, 0x80000001}}, kPool, kBase);
  std::vector<KernelFragment> written(3);
  const UnpackShape shape = write_list(leading_run({&block, 1}), written.data(), PoolMemory::kDevice);
  EXPECT_EQ(shape.bytes, 0x80000002u);
  EXPECT_EQ(shape.longest_bytes, 0x40000001u);
  EXPECT_EQ(written[0].destination, address(kBase));
  EXPECT_EQ(written[1].destination, address(kBase + 0x40000000));
  EXPECT_EQ(written[2].destination, address(kBase + 0x80000001));
}

TEST(UnpackList, OneFragmentOfAnotherAlignmentMakesTheListMixed) {
  for (uint32_t pool = 0; pool < 16; pool += 5) {
    for (uint32_t source = 0; source < 16; ++source) {
      for (uint32_t destination = 0; destination < 16; ++destination) {
        // The first fragment is congruent for any bases; the second is set by the loops.
        const uint32_t even = (destination - pool) % 16;
        const std::vector<DescriptorBlock> blocks = {
            block_of({{even, 64, 0}, {even + 64, 1, 64}}, kPool + pool, kDestination + destination),
            block_of({{source, 3, 0}}, kPool + pool, kDestination + destination)};
        std::vector<KernelFragment> list(3);
        const UnpackShape shape = write_list(leading_run(blocks), list.data(), PoolMemory::kDevice);
        const bool congruent = (pool + source) % 16 == destination;
        EXPECT_EQ(shape.alignment, congruent ? AlignmentClass::kCongruent : AlignmentClass::kMixed)
            << pool << " + " << source << " to " << destination;
      }
    }
  }
}

TEST(UnpackList, ABlockOfAnotherAlignmentMakesTheListMixedWhereverItStands) {
  const DescriptorBlock congruent = block_of({{0, 64, 0}}), other = block_of({{1, 64, 0}});
  for (const auto& blocks : {std::vector{congruent, other}, std::vector{other, congruent}}) {
    std::vector<KernelFragment> list(2);
    EXPECT_EQ(write_list(leading_run(blocks), list.data(), PoolMemory::kDevice).alignment, AlignmentClass::kMixed);
  }
}

TEST(UnpackList, BlocksWithOnePoolAreOneRun) {
  const std::vector<DescriptorBlock> blocks(20, block_of({{0, 1, 0}}));
  const PoolRun run = leading_run(blocks);
  EXPECT_EQ(run.blocks.size(), 20u);
  EXPECT_EQ(run.pool, address(kPool));
}

TEST(UnpackList, ARunEndsWhereThePoolChanges) {
  const std::vector<DescriptorBlock> blocks = {block_of({{0, 1, 0}}), block_of({{0, 1, 0}}), block_of({{0, 1, 0}}, kPool + 16),
                                               block_of({{0, 1, 0}})};
  const std::span<const DescriptorBlock> all(blocks);
  EXPECT_EQ(leading_run(all).blocks.size(), 2u);
  EXPECT_EQ(leading_run(all.subspan(2)).blocks.size(), 1u);
  EXPECT_EQ(leading_run(all.subspan(2)).pool, address(kPool + 16));
  EXPECT_EQ(leading_run(all.subspan(3)).blocks.size(), 1u);
}

TEST(UnpackList, BlocksWithoutFragmentsDivideNoRun) {
  const std::vector<DescriptorBlock> blocks = {DescriptorBlock(), block_of({{0, 1, 0}}), block_of({}, kPool + 4096),
                                               block_of({{9, 1, 0}}), DescriptorBlock()};
  const PoolRun run = leading_run(blocks);
  EXPECT_EQ(run.blocks.size(), blocks.size());
  EXPECT_EQ(run.pool, address(kPool));
}

TEST(UnpackList, BlocksWithoutAnyFragmentHaveNoPool) {
  const std::vector<DescriptorBlock> blocks(3);
  EXPECT_EQ(leading_run(blocks).blocks.size(), 3u);
  EXPECT_EQ(leading_run(blocks).pool, nullptr);
  EXPECT_EQ(leading_run({}).pool, nullptr);
}

TEST(UnpackList, WritingAllocatesNothing) {
  std::vector<Fragment> fragments;
  for (uint32_t i = 0; i < kMaxFragments; ++i) fragments.push_back({i, 1, i});
  const std::vector<DescriptorBlock> blocks(kQueueDepth, block_of(fragments));
  std::vector<KernelFragment> list(kQueueDepth * kMaxFragments);
  const uint64_t before = allocation_count();
  const UnpackShape shape = write_list(leading_run(blocks), list.data(), PoolMemory::kDevice);
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(shape.fragment_count, list.size());
}

}  // namespace
}  // namespace tcpx::testing
