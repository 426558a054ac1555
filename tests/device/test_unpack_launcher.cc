// UnpackLauncher on a real GPU: support/launcher_cases.cc, and cases that a fake one cannot cover. Skipped without one.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/count_allocations.h"
#include "tests/support/launcher_fixture.h"

namespace tcpx::testing {
namespace {

using RealGpuLauncher = LauncherFixture;

TEST_F(RealGpuLauncher, ALaunchAllocatesNothing) {
  const auto launcher = make({});
  const std::vector<DescriptorBlock> blocks = {next_block(200), next_block(100)};
  ASSERT_TRUE(launcher->launch_sync(blocks, soon()).is_ok());
  const uint64_t before = allocation_count();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(launcher->launch_sync(blocks, soon()).is_ok());
  EXPECT_EQ(allocation_count(), before);
}

}  // namespace
}  // namespace tcpx::testing
