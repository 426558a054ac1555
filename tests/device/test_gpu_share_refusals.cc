// GPU memory that is not shared, and shares that are not mapped. The first case needs no GPU.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <vector>

#include "device/cuda_handles.h"
#include "device/shared_gpu_memory.h"
#include "tests/support/chunked_gpu_memory.h"
#include "tests/support/expect_log.h"
#include "tests/support/shared_gpu_memory_fixture.h"

namespace tcpx::testing {
namespace {

TEST(GpuShareNumbers, AreCheckedBeforeTheDriverSeesThem) {
  MemoryShare share;
  share.kind = ShareKind::kIpc;
  share.base = uint64_t{1} << 40;
  share.bytes = kMiB;
  EXPECT_OK(SharedGpuMemory::check(share, false));
  const auto code_with = [&](auto change, bool has_fd = false) {
    MemoryShare changed = share;
    change(changed);
    return SharedGpuMemory::check(changed, has_fd).code();
  };
  EXPECT_EQ(code_with([](MemoryShare& s) { s.kind = ShareKind::kFabric; }), Code::kOk);
  EXPECT_EQ(code_with([](MemoryShare& s) { s.kind = ShareKind::kFile; }, true), Code::kOk);
  EXPECT_EQ(code_with([](MemoryShare& s) { s.kind = ShareKind::kFile; }), Code::kInvalidArgument) << "without a descriptor";
  EXPECT_EQ(code_with([](MemoryShare& s) { s.kind = ShareKind::kNone; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](MemoryShare& s) { s.kind = ShareKind{7}; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](MemoryShare& s) { s.bytes = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](MemoryShare& s) { s.bytes = uint64_t{1} << 63; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](MemoryShare& s) { s.base = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](MemoryShare& s) { s.base = UINT64_MAX - 4095; }), Code::kInvalidArgument) << "beyond the last address";
}

class GpuShareRefusals : public SharedGpuMemoryTest {};

TEST_F(GpuShareRefusals, SharesThatLieAreRefused) {
  allow_log("map shared GPU memory");
  std::mt19937_64 random(7);
  for (const uint32_t chunks : {0, 1}) {
    const PeerAnswer made = peer_->make(gpus() - 1, 4 * kMiB, 700, chunks);
    const auto refuses = [&](auto change, UniqueFd other = UniqueFd()) {
      UniqueFd fd;
      MemoryShare share = peer_->share(made.id, 0, &fd).share;
      change(share);
      const auto mapped = memory_->map_shared(0, share, other ? other.get() : fd.get());
      EXPECT_FALSE(mapped.is_ok()) << mapped->size() << " bytes mapped";
      if (!mapped.is_ok()) std::printf("%s\n", text_of(mapped).c_str());
    };
    refuses([](MemoryShare& s) { s.kind = ShareKind{7}; });
    refuses([](MemoryShare& s) { s.bytes = uint64_t{1} << 63; });
    for (const uint64_t more : {uint64_t{2}, uint64_t{1} << 10, uint64_t{1} << 20}) {
      refuses([&](MemoryShare& s) { s.bytes *= more; });
    }
    refuses([](MemoryShare& s) { s.bytes += kBlockBytes; });
    if (chunks == 0) {
      refuses([](MemoryShare& s) { s.handle = {}; });
      for (int i = 0; i < 16; ++i) {
        refuses([&](MemoryShare& s) {
          for (std::byte& byte : s.handle) byte = static_cast<std::byte>(random());
        });
      }
    } else {
      refuses([](MemoryShare& s) { s.bytes += 1; });
      int pipes[2];
      ASSERT_EQ(::pipe2(pipes, O_CLOEXEC), 0);
      const UniqueFd other_end(pipes[1]);
      refuses([](MemoryShare&) {}, UniqueFd(pipes[0]));
      refuses([](MemoryShare&) {}, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)));
      refuses([](MemoryShare& s) { s.kind = ShareKind::kIpc; });
    }
    refuses([&](MemoryShare& s) {
      s.kind = ShareKind::kFabric;
      for (std::byte& byte : s.handle) byte = static_cast<std::byte>(random());
    });
    for (const int device : {-1, gpus()}) {
      UniqueFd fd;
      const PeerAnswer answer = peer_->share(made.id, 0, &fd);
      EXPECT_EQ(memory_->map_shared(device, answer.share, fd.get()).status().code(), Code::kInvalidArgument);
    }
    readers_[0]->expect(map(0, made).device(), made.bytes, 700);
  }
}

TEST_F(GpuShareRefusals, MemoryThatCannotLeaveTheProcessSaysWhy) {
  allow_log("map shared GPU memory");
  UniqueFd fd;
  const auto why_not = [&](const void* address) {
    const auto share = memory_->share(address, fd);
    EXPECT_EQ(share.status().code(), Code::kUnsupported) << text_of(share);
    std::printf("%s\n", share.status().detail().c_str());
    return share.status().detail();
  };
  EXPECT_EQ(memory_->share(nullptr, fd).status().code(), Code::kInvalidArgument);
  std::vector<std::byte> heap(100);
  EXPECT_NE(why_not(heap.data()).find("host memory"), std::string::npos);
  EXPECT_NE(why_not(must(memory_->allocate_mapped(0, 100)).device()).find("host memory"), std::string::npos);
  void* pooled = nullptr;
  ASSERT_EQ(cudaMallocAsync(&pooled, kMiB, nullptr), cudaSuccess);
  EXPECT_NE(why_not(pooled).find("memory pool"), std::string::npos);
  ASSERT_EQ(cudaFreeAsync(pooled, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const ChunkedGpuMemory kept(0, kMiB, 1, CU_MEM_HANDLE_TYPE_NONE);
  ASSERT_OK(kept.status());
  EXPECT_NE(why_not(kept.address()).find("without a handle type"), std::string::npos);

  const MemoryBuffer own = must(memory_->allocate_device(0, kMiB));
  const auto mapped = memory_->map_shared(0, must(memory_->share(own.device(), fd)), -1);
  EXPECT_FALSE(mapped.is_ok());
  std::printf("its own memory: %s\n", text_of(mapped).c_str());
}

}  // namespace
}  // namespace tcpx::testing
