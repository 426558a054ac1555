// GPU memory of another process: every byte of it as this process' GPUs read it, and how long it stays.
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <vector>

#include "tests/support/shared_gpu_memory_fixture.h"

namespace tcpx::testing {
namespace {

TEST_F(SharedGpuMemoryTest, EveryByteOfAnAllocationIsRead) {
  uint64_t seed = 100;
  for_each_pair([&](int owner, int device) {
    for (const uint64_t bytes : {uint64_t{8}, uint64_t{100}, 3 * kMiB + 8, 64 * kMiB}) {
      const PeerAnswer made = peer_->make(owner, bytes, ++seed);
      MemoryShare share;
      const MemoryBuffer mapped = map(device, made, bytes / 2, &share);
      EXPECT_EQ(share.kind, ShareKind::kIpc);
      EXPECT_EQ(share.base, made.address) << "the beginning, whatever address inside was named";
      EXPECT_GE(share.bytes, bytes);
      EXPECT_EQ(mapped.size(), share.bytes);
      EXPECT_EQ(mapped.host(), nullptr);
      readers_[device]->expect(mapped.device(), bytes, seed);
      peer_->free(made.id);
    }
  });
}

TEST_F(SharedGpuMemoryTest, SmallAllocationsInOneBlockAreToldApart) {
  for_each_pair([&](int owner, int device) {
    struct Small {
      PeerAnswer made;
      uint64_t bytes;
      MemoryBuffer mapped;
    };
    std::vector<Small> all;
    for (int i = 0; i < 20; ++i) {
      const uint64_t bytes = std::min<uint64_t>(kMiB, uint64_t{8} << (i % 18)) + (i > 2 ? i : 0);
      all.push_back({peer_->make(owner, bytes, 200 + i), bytes, {}});
    }
    std::map<uint64_t, int> in_block;
    int own_places = 0;
    for (Small& small : all) {
      small.mapped = map(device, small.made, small.bytes - 1);
      ++in_block[small.made.address / kBlockBytes];
      own_places += reinterpret_cast<uint64_t>(small.mapped.device()) % kBlockBytes == small.made.address % kBlockBytes;
    }
    std::printf("%d of 20 were opened at their own place in a block\n", own_places);
    for (const auto& [block, count] : in_block)
      std::printf("%d allocations in the block at %#" PRIx64 "\n", count, block * kBlockBytes);
    EXPECT_TRUE(std::any_of(in_block.begin(), in_block.end(), [](const auto& block) { return block.second > 1; }));
    for (int i = 0; i < 20; ++i) readers_[device]->expect(all[i].mapped.device(), all[i].bytes, 200 + i);
    // The others of a block outlive one that is unmapped.
    for (int i = 0; i < 20; i += 2) all[i].mapped = MemoryBuffer();
    for (int i = 1; i < 20; i += 2) readers_[device]->expect(all[i].mapped.device(), all[i].bytes, 200 + i);
    all.resize(0);
  });
}

TEST_F(SharedGpuMemoryTest, ChunksOfOneRangeAreSharedOneByOne) {
  for_each_pair([&](int owner, int device) {
    for (const uint32_t chunks : {1, 3}) {
      const PeerAnswer made = peer_->make(owner, 4 * kMiB, 300, chunks);
      for (uint32_t i = 0; i < chunks; ++i) {
        MemoryShare share;
        const MemoryBuffer mapped = map(device, made, i * made.bytes + 1000, &share);
        EXPECT_EQ(share.kind, ShareKind::kFile);
        EXPECT_EQ(share.base, made.address + i * made.bytes) << "of the chunk, not of the range";
        EXPECT_EQ(share.bytes, made.bytes);
        readers_[device]->expect(mapped.device(), made.bytes, 300, i * made.bytes);
      }
    }
  });
}

TEST_F(SharedGpuMemoryTest, OneAllocationIsMappedTwiceAndForEachGpu) {
  for (const uint32_t chunks : {0, 1}) {
    const PeerAnswer made = peer_->make(gpus() - 1, 4 * kMiB, 400, chunks);
    std::vector<MemoryBuffer> first, second;
    for (int device = 0; device < gpus(); ++device) {
      first.push_back(map(device, made));
      second.push_back(map(device, made));
      std::printf("mapped for GPU %d at %p and %p\n", device, static_cast<void*>(first[device].device()),
                  static_cast<void*>(second[device].device()));
    }
    first.clear();
    for (int device = 0; device < gpus(); ++device) readers_[device]->expect(second[device].device(), made.bytes, 400);
    second.clear();
    readers_[0]->expect(map(0, made).device(), made.bytes, 400);
  }
}

TEST_F(SharedGpuMemoryTest, AnotherAllocationAtTheSameAddressHasAnotherIdentity) {
  const PeerAnswer made = peer_->make(0, 4 * kMiB, 500, 2);
  MemoryShare before, same, after, neighbour;
  const MemoryBuffer old = map(0, made, 0, &before);
  (void)map(0, made, 5000, &same);
  (void)map(0, made, made.bytes, &neighbour);
  peer_->remap(made.id, 0, 501);
  const MemoryBuffer fresh = map(0, made, 0, &after);
  EXPECT_EQ(before.identity, same.identity);
  EXPECT_NE(before.identity, neighbour.identity);
  EXPECT_EQ(before.base, after.base);
  EXPECT_NE(before.identity, after.identity) << "of a chunk";
  readers_[0]->expect(old.device(), made.bytes, 500);
  readers_[0]->expect(fresh.device(), made.bytes, 501);

  const PeerAnswer plain = peer_->make(0, 64 * kMiB, 502);
  const MemoryBuffer first = map(0, plain, 0, &before);
  (void)map(0, plain, 5000, &same);
  EXPECT_EQ(before.identity, same.identity);
  peer_->free(plain.id);
  const PeerAnswer again = peer_->make(0, 64 * kMiB, 503);
  const MemoryBuffer second = map(0, again, 0, &after);
  EXPECT_NE(before.identity, after.identity);
  std::printf("freed and allocated again: %s address\n", before.base == after.base ? "the same" : "another");
  readers_[0]->expect(second.device(), 64 * kMiB, 503);
}

// The way of ending: freed, or killed with the process.
class SharedGpuMemoryEnds : public SharedGpuMemoryTest, public ::testing::WithParamInterface<bool> {};

TEST_P(SharedGpuMemoryEnds, MappedMemoryStaysReadableAndGoesWithItsMapping) {
  constexpr uint64_t kBytes = 2048 * kMiB;  // more than tests beside this one take and give meanwhile
  for_each_pair([&](int owner, int device) {
    for (const uint32_t chunks : {0, 1}) {
      if (GetParam()) peer_ = std::make_unique<GpuMemoryPeer>(TCPX_GPU_MEMORY_PEER);
      // The process' own context takes memory, too.
      peer_->free(peer_->make(owner, kMiB, 1, chunks).id);
      const uint64_t at_first = must(free_gpu_bytes(owner));
      const PeerAnswer made = peer_->make(owner, kBytes, 600, chunks);
      MemoryBuffer mapped = map(device, made);
      if (GetParam()) {
        peer_->kill();
      } else {
        peer_->free(made.id);
      }
      readers_[device]->expect(mapped.device(), kBytes / 4, 600);
      const PatternCheck found = must(must(GpuPattern::create(device, *memory_))->check(mapped.device(), kBytes, 600));
      EXPECT_EQ(found.wrong, 0u) << "the memory is still what it was";
      const uint64_t while_mapped = must(free_gpu_bytes(owner));
      mapped = MemoryBuffer();
      uint64_t afterwards = 0;
      EXPECT_TRUE(wait_until([&] {
        afterwards = must(free_gpu_bytes(owner));
        return afterwards + kBytes / 2 >= at_first;
      })) << "the memory does not come back";
      const auto change = [&](uint64_t now) { return (static_cast<int64_t>(now) - static_cast<int64_t>(at_first)) >> 20; };
      std::printf("%s: %" PRIu64 " bytes differ; free memory against before: mapped %+" PRId64 " MiB, unmapped %+" PRId64
                  " MiB\n",
                  chunks == 0 ? "cudaMalloc" : "cuMemCreate", found.wrong, change(while_mapped), change(afterwards));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Gpu, SharedGpuMemoryEnds, ::testing::Values(false, true),
                         [](const auto& way) { return way.param ? "killed" : "freed"; });

TEST_F(SharedGpuMemoryTest, SaysWhatItCosts) {
  using Micros = std::chrono::duration<double, std::micro>;
  for_each_pair([&](int owner, int device) {
    for (const uint32_t chunks : {0, 1}) {
      const PeerAnswer made = peer_->make(owner, 64 * kMiB, 900, chunks);
      double share_us = 1e9, map_us = 1e9, unmap_us = 1e9;
      for (int i = 0; i < 10; ++i) {
        UniqueFd fd;
        const PeerAnswer answer = peer_->share(made.id, 0, &fd);
        const auto began = std::chrono::steady_clock::now();
        auto mapped = memory_->map_shared(device, answer.share, fd.get());
        const auto is_mapped = std::chrono::steady_clock::now();
        ASSERT_OK(mapped);
        *mapped = MemoryBuffer();
        const auto is_unmapped = std::chrono::steady_clock::now();
        share_us = std::min(share_us, answer.share_us);
        map_us = std::min(map_us, Micros(is_mapped - began).count());
        unmap_us = std::min(unmap_us, Micros(is_unmapped - is_mapped).count());
      }
      std::printf("%s of GPU %d for GPU %d, 64 MiB: share %.1f us, map %.1f us, unmap %.1f us\n",
                  chunks == 0 ? "cudaMalloc" : "cuMemCreate", owner, device, share_us, map_us, unmap_us);
      peer_->free(made.id);
    }
  });
}

}  // namespace
}  // namespace tcpx::testing
