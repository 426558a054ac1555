// The parts of UnpackLauncher that need no GPU: its configuration, its statistics, and with support/fake_cuda.cc in place of
// CUDA all cases of support/launcher_cases.cc.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "device/unpack_launcher.h"
#include "device/unpacker_factory.h"

namespace tcpx {
namespace {

class LauncherConfig : public ::testing::Test {
 protected:
  LauncherConfig() { clear(); }
  ~LauncherConfig() override { clear(); }
  static void clear() {
    ::unsetenv("UCCL_TCPX_UNPACK_BLOCKS");
    ::unsetenv("UCCL_TCPX_LAUNCH_DEBUG");
  }
};

TEST_F(LauncherConfig, CapsNothingAndLogsNothingUnlessTold) {
  const auto config = UnpackLauncher::Config::from_environment();
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->block_budget, 0u);
  EXPECT_FALSE(config->profile);
  EXPECT_FALSE(config->log_launches);
  EXPECT_EQ(config->in_flight, kQueueDepth);
  EXPECT_EQ(config->list_capacity, kMaxBatchBlocks * kMaxFragments) << "room for the largest batch";
}

TEST_F(LauncherConfig, TakesBothVariables) {
  ::setenv("UCCL_TCPX_UNPACK_BLOCKS", "65535", 1);
  ::setenv("UCCL_TCPX_LAUNCH_DEBUG", "1", 1);
  const auto config = UnpackLauncher::Config::from_environment();
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->block_budget, 65535u);
  EXPECT_TRUE(config->profile);
  EXPECT_TRUE(config->log_launches);
}

TEST_F(LauncherConfig, AMalformedVariableIsAnError) {
  const auto memory = make_host_memory_ops();
  for (const char* bad : {"0", "65536", "-1", "4 ", "all"}) {
    ::setenv("UCCL_TCPX_UNPACK_BLOCKS", bad, 1);
    EXPECT_EQ(UnpackLauncher::Config::from_environment().status().code(), Code::kBadConfig) << bad;
    EXPECT_EQ(make_kernel_unpacker(0, *memory).status().code(), Code::kBadConfig) << bad;
  }
  clear();
  for (const char* bad : {"2", "yes"}) {
    ::setenv("UCCL_TCPX_LAUNCH_DEBUG", bad, 1);
    EXPECT_EQ(UnpackLauncher::Config::from_environment().status().code(), Code::kBadConfig) << bad;
  }
}

TEST_F(LauncherConfig, ThatAllowsNothingIsRefused) {
  const auto memory = make_host_memory_ops();
  UnpackLauncher::Config config;
  config.in_flight = 0;
  EXPECT_EQ(UnpackLauncher::create(0, *memory, config).status().code(), Code::kInvalidArgument);
  config = {};
  config.list_capacity = 0;
  EXPECT_EQ(UnpackLauncher::create(0, *memory, config).status().code(), Code::kInvalidArgument);
  config = {};
  config.launch = nullptr;
  EXPECT_EQ(UnpackLauncher::create(0, *memory, config).status().code(), Code::kInvalidArgument);
}

TEST(LaunchStats, TheRateIsThatOfTheTimedBytes) {
  LaunchStats stats;
  stats.bytes = 5000;
  EXPECT_EQ(stats.gb_per_second(), 0) << "nothing was timed";
  stats.timed_bytes = 3000;
  stats.device_time = std::chrono::microseconds(2);
  EXPECT_DOUBLE_EQ(stats.gb_per_second(), 1.5);
  EXPECT_EQ(to_text(stats), "0 launches, 0 copies, 0 requests, 0 fragments, 5000 bytes, 0 errors, 2.0 us, 1.5 GB/s");
}

}  // namespace
}  // namespace tcpx
