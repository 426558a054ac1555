// For the cases of an UnpackLauncher on a GPU: memory with a shadow on the host, blocks with their own places in it, and streams
// that are blocked until released.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "device/unpack_launcher.h"
#include "device/unpacker_factory.h"
#include "measure/pattern.h"
#include "tests/support/ok.h"

namespace tcpx::testing {

/// Work put on `stream` from now on waits until the hold is released, at the latest by its destruction.
class Hold {
 public:
  explicit Hold(StreamView stream) {
    // The callback shares ownership of the flag: it may still read it when the hold is gone.
    auto callers = std::make_unique<Flag>(go_);
    EXPECT_EQ(cudaLaunchHostFunc(stream.get(), &Hold::wait_for_flag, callers.get()), cudaSuccess);
    [[maybe_unused]] const Flag* const taken = callers.release();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { let_go(); }
  void let_go() { *go_ = true; }

 private:
  using Flag = std::shared_ptr<std::atomic<bool>>;
  static void wait_for_flag(void* user) {
    const std::unique_ptr<Flag> flag(static_cast<Flag*>(user));
    while (!**flag) std::this_thread::yield();
  }
  const Flag go_ = std::make_shared<std::atomic<bool>>(false);
};

/// For waits that must not succeed.
inline Deadline shortly() {
  return Deadline::after(std::chrono::milliseconds(20));
}

class LauncherFixture : public ::testing::Test {
 protected:
  static constexpr size_t kPoolBytes = size_t{1} << 20;
  static constexpr size_t kDestinationBytes = size_t{16} << 20;
  static constexpr std::byte kGuard{0xa5};

  /// The driver opens descriptors on first use here and keeps them.
  static void SetUpTestSuite() {
    if (!make_machine_memory_ops()->has_gpu()) return;
    const Stream stream = must(Stream::create());
    Hold(stream.view()).let_go();
    ASSERT_OK(stream.view().synchronize());
  }

  void SetUp() override {
    memory_ = make_machine_memory_ops();
    if (!memory_->has_gpu()) GTEST_SKIP() << make_unpacker(UnpackKind::kKernel, 0, *memory_).status().detail();
    lane_ = memory_->make_copy_lane(0).value();
    pool_ = memory_->allocate_device(0, kPoolBytes).value();
    destination_ = memory_->allocate_device(0, kDestinationBytes).value();
    pool_shadow_.resize(kPoolBytes);
    fill_pattern(pool_shadow_, 5);
    shadow_.assign(kDestinationBytes, kGuard);
    ASSERT_TRUE(lane_->copy(pool_.device(), pool_shadow_.data(), kPoolBytes).is_ok());
    ASSERT_TRUE(lane_->copy(destination_.device(), shadow_.data(), kDestinationBytes).is_ok());
  }

  std::unique_ptr<UnpackLauncher> make(UnpackLauncher::Config config) {
    return must(UnpackLauncher::create(0, *memory_, std::move(config)));
  }

  Stream make_stream() { return must(Stream::create()); }

  /// A block of fragments in random order from random places of the pool, also applied to the shadow. Blocks do not touch
  /// each other.
  /// @param pool_off offset of the block's pool in pool_: below 4096.
  DescriptorBlock next_block(size_t fragments, uint32_t longest = 300, uint64_t pool_off = 0) {
    std::vector<Fragment> list;
    uint64_t bytes = 0;
    while (list.size() < fragments) {
      const uint32_t len = 1 + random_below(longest);
      list.push_back({random_below(static_cast<uint32_t>(kPoolBytes - 4096 - longest)), len, bytes});
      bytes += len;
    }
    std::shuffle(list.begin(), list.end(), random_);
    const uint64_t at = destination_used_ + random_below(32);
    destination_used_ = at + bytes;
    const auto built = [&](const std::byte* pool, std::byte* destination) {
      DescriptorBlock block;
      EXPECT_OK(block.build(list, bytes, {pool + pool_off, kPoolBytes - pool_off, destination + at, kDestinationBytes - at}));
      return block;
    };
    cpu_unpack(built(pool_shadow_.data(), shadow_.data()));
    return built(pool_.device(), destination_.device());
  }

  /// The whole destination, gaps between blocks included.
  void expect_destination_as_shadow() {
    std::vector<std::byte> found(kDestinationBytes);
    ASSERT_TRUE(lane_->copy(found.data(), destination_.device(), found.size()).is_ok());
    expect_as_shadow(found.data());
  }
  void expect_as_shadow(const std::byte* found) {
    const auto [at, wanted] = std::mismatch(shadow_.begin(), shadow_.end(), found);
    ASSERT_TRUE(at == shadow_.end()) << "destination byte " << at - shadow_.begin() << " is " << static_cast<int>(*wanted)
                                     << ", not " << static_cast<int>(*at);
  }

  uint32_t random_below(uint32_t limit) { return std::uniform_int_distribution<uint32_t>(0, limit - 1)(random_); }

  std::unique_ptr<MemoryOps> memory_;
  std::unique_ptr<CopyLane> lane_;
  MemoryBuffer pool_;
  MemoryBuffer destination_;

 private:
  std::vector<std::byte> pool_shadow_;
  std::vector<std::byte> shadow_;
  uint64_t destination_used_ = 0;
  std::mt19937 random_{7};
};

}  // namespace tcpx::testing
