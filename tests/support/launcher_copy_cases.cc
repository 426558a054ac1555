// Messages that an UnpackLauncher leaves to the copy engine. On a real GPU or on the fake one, as launcher_cases.cc.
#include <gtest/gtest.h>

#include <vector>

#include "device/unpack_launcher.h"
#include "tests/support/launcher_fixture.h"

namespace tcpx::testing {
namespace {

class LauncherCopies : public LauncherFixture {
 protected:
  static constexpr uint32_t kPages = 64;
  static constexpr size_t kBytes = kPages * size_t{kPageBytes};

  void SetUp() override {
    LauncherFixture::SetUp();
    if (IsSkipped()) return;
    mapped_ = memory_->allocate_mapped(0, kBytes).value();
    fill_pattern(std::span(mapped_.host(), kBytes), 3);
    target_ = memory_->allocate_device(0, kBytes).value();
    ASSERT_TRUE(lane_->copy(target_.device(), std::vector<std::byte>(kBytes, kGuard).data(), kBytes).is_ok());
    wanted_.assign(kBytes, kGuard);
    launcher_ = make({});
  }
  /// A message of pages `pages` of the mapped pool, to the next place after those of earlier blocks.
  DescriptorBlock block(const std::vector<uint32_t>& pages, uint32_t last_bytes = kPageBytes) {
    std::vector<Fragment> list;
    uint64_t bytes = 0;
    for (const uint32_t page : pages) {
      const uint32_t len = &page == &pages.back() ? last_bytes : kPageBytes;
      list.push_back({page * kPageBytes, len, bytes});
      bytes += len;
    }
    DescriptorBlock block;
    EXPECT_OK(block.build(list, bytes, {mapped_.device(), kBytes, target_.device() + used_, kBytes - used_}));
    for (const Fragment& f : list) {
      std::copy_n(mapped_.host() + f.src_off, f.len, wanted_.begin() + static_cast<std::ptrdiff_t>(used_ + f.dst_off));
    }
    used_ += bytes + 5;
    return block;
  }
  void expect(const std::vector<DescriptorBlock>& blocks, uint64_t launches, uint64_t copies) {
    const LaunchStats before = launcher_->stats();
    ASSERT_OK(launcher_->launch_sync(blocks, soon()));
    EXPECT_EQ(launcher_->stats().launches - before.launches, launches);
    EXPECT_EQ(launcher_->stats().copies - before.copies, copies);
    std::vector<std::byte> found(kBytes);
    ASSERT_TRUE(lane_->copy(found.data(), target_.device(), kBytes).is_ok());
    EXPECT_TRUE(found == wanted_);
  }

  MemoryBuffer mapped_, target_;
  std::vector<std::byte> wanted_;
  uint64_t used_ = 0;
  std::unique_ptr<UnpackLauncher> launcher_;
};

TEST_F(LauncherCopies, AMessageInOnePieceOfMappedMemoryIsACopy) {
  expect({block({5}, 1)}, 0, 1);
  expect({block({3, 4, 5, 6}, 100)}, 0, 1);
}

TEST_F(LauncherCopies, TwoSmallOnesAreACopyEach) {
  expect({block({1}), block({2, 3}, 7)}, 0, 2);
  expect({{}, block({9})}, 0, 1);
}

TEST_F(LauncherCopies, MoreOfThemAreOneLaunch) {
  expect({block({1}), block({9}, 7), block({2, 3})}, 1, 0);
}

TEST_F(LauncherCopies, ALargeOneIsALaunch) {
  std::vector<uint32_t> pages(16);
  for (uint32_t i = 0; i < 16; ++i) pages[i] = 8 + i;
  expect({block(pages)}, 0, 1);
  pages.push_back(24);
  expect({block(pages, 1)}, 1, 0);
}

TEST_F(LauncherCopies, ScatteredOnesAreLaunchedWithAllOfTheirBatch) {
  expect({block({7, 6, 5})}, 1, 0);
  expect({block({1, 2}), block({4, 6})}, 1, 0);
}

TEST_F(LauncherCopies, DeviceMemoryIsLeftToTheKernel) {
  const DescriptorBlock one = next_block(1);
  EXPECT_NE(one.contiguous_source(), nullptr);
  EXPECT_TRUE(launcher_->launch_sync({&one, 1}, soon()).is_ok());
  EXPECT_EQ(launcher_->stats().launches, 1u);
  EXPECT_EQ(launcher_->stats().copies, 0u);
  expect_destination_as_shadow();
}

TEST_F(LauncherCopies, CopiesAreTimed) {
  UnpackLauncher::Config config;
  config.profile = true;
  launcher_ = make(config);
  expect({block({1, 2})}, 0, 1);
  EXPECT_EQ(launcher_->stats().timed_bytes, 2u * kPageBytes);
}

}  // namespace
}  // namespace tcpx::testing
