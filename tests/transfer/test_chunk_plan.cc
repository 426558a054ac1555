#include "transfer/chunk_plan.h"

#include <gtest/gtest.h>

#include <tuple>

namespace tcpx {
namespace {

TEST(ChunkPlan, TilesTheTransferOnceAndInOrder) {
  for (const uint64_t chunk_bytes : {1u, 3u, 4096u, 524288u, kMaxRequestBytes}) {
    for (const uint64_t chunks : {1u, 2u, 3u, 17u}) {
      for (const int64_t around : {-1, 0, 1}) {
        const uint64_t bytes = chunk_bytes * chunks + static_cast<uint64_t>(around);
        const ChunkPlan plan = ChunkPlan::make(bytes, chunk_bytes).value();
        uint64_t covered = 0;
        for (uint64_t i = 0; i < plan.count(); ++i) {
          const Chunk chunk = plan[i];
          EXPECT_EQ(chunk.index, i);
          EXPECT_EQ(chunk.offset, covered);
          EXPECT_LE(chunk.bytes, chunk_bytes);
          EXPECT_TRUE(chunk.bytes == chunk_bytes || i + 1 == plan.count()) << "only the last may be short";
          EXPECT_TRUE(chunk.bytes > 0 || bytes == 0) << "an empty chunk in a transfer of " << bytes;
          covered += chunk.bytes;
        }
        EXPECT_EQ(covered, bytes) << bytes << " bytes in chunks of " << chunk_bytes;
      }
    }
  }
}

TEST(ChunkPlan, ChunksOfOneChannelGrowWithTheTransferUpToTheLongest) {
  const std::tuple<uint64_t, uint64_t, uint32_t> cases[] = {// longest, transfer, chunk
                                                            {0, 1u << 30, 4096},
                                                            {4096, 1u << 30, 4096},
                                                            {100, 1u << 30, 4096},
                                                            {65536, 8191, 4096},
                                                            {65536, 8192, 8192},
                                                            {65536, 8193, 8192},
                                                            {65536, 4 * 16384 - 1, 8192},
                                                            {65536, 4 * 16384, 16384},
                                                            {65536, 4 * 65536 - 1, 32768},
                                                            {65536, 4 * 65536, 65536},
                                                            {65536, 1u << 30, 65536},
                                                            {8191, 1u << 30, 4096},
                                                            {12288, uint64_t{1} << 40, 8192}};
  for (const auto& [longest, bytes, chunk] : cases) {
    EXPECT_EQ(ChunkPlan::make(bytes, 4096, longest).value()[0].bytes, chunk) << longest << ' ' << bytes;
  }
}

TEST(ChunkPlan, ChunksThatSeveralChannelsShareGrowOnlyWhenEachHasMany) {
  for (const uint64_t channels : {2u, 4u, 32u}) {
    for (const uint32_t chunk : {8192u, 16384u, 65536u}) {
      const uint64_t enough = channels * 16 * chunk;
      EXPECT_EQ(ChunkPlan::make(enough - 1, 4096, 65536, channels).value()[0].bytes, chunk / 2) << channels;
      EXPECT_EQ(ChunkPlan::make(enough, 4096, 65536, channels).value()[0].bytes, chunk) << channels;
    }
  }
}

TEST(ChunkPlan, AnEmptyTransferIsOneEmptyChunk) {
  const ChunkPlan plan = ChunkPlan::make(0, 4096).value();
  ASSERT_EQ(plan.count(), 1u);
  EXPECT_EQ(plan[0], (Chunk{.index = 0, .offset = 0, .bytes = 0}));
}

TEST(ChunkPlan, TheLargestTransferDoesNotWrap) {
  const ChunkPlan plan = ChunkPlan::make(~uint64_t{0}, 1u << 20).value();
  ASSERT_EQ(plan.count(), uint64_t{1} << 44);
  const Chunk last = plan[plan.count() - 1];
  EXPECT_EQ(last.offset + last.bytes, ~uint64_t{0});
}

TEST(ChunkPlan, RefusesChunksThatNoRequestTakes) {
  EXPECT_EQ(ChunkPlan::make(1, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ChunkPlan::make(1, kMaxRequestBytes + 1ull).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ChunkPlan::make(1, 1, kMaxRequestBytes + 1ull).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ChunkPlan::make(1, (uint64_t{1} << 32) + 1).status().code(), Code::kInvalidArgument) << "must not wrap to 1";
}

}  // namespace
}  // namespace tcpx
