// The parts of UnpackLauncher that need no GPU: its configuration, its statistics, and with support/fake_cuda.cc in place of
// CUDA all cases of support/launcher_cases.cc.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/own_thread.h"
#include "device/unpack_launcher.h"
#include "device/unpacker_factory.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

class CudaContexts : public ::testing::Test {
 protected:
  /// The fake begins a thread with its first stream.
  static void SetUpTestSuite() { ASSERT_OK(testing::must(Stream::create()).view().synchronize()); }
};

TEST_F(CudaContexts, NoneIsMadeOnAGpuThatNobodyUses) {
  const int before = testing::contexts_made_unasked();
  std::optional<Stream> stream;
  std::optional<Event> event;
  std::thread([&] {
    const auto guard = DeviceGuard::enter(1);
    ASSERT_OK(guard.status());
    stream.emplace(testing::must(Stream::create()));
    event.emplace(testing::must(Event::create()));
    ASSERT_OK(event->view().record(stream->view()));
  }).join();
  std::thread([&] {
    EXPECT_OK(stream->view().health());
    EXPECT_OK(stream->view().synchronize());
    EXPECT_TRUE(testing::must(event->view().is_done()));
    event.reset();
    stream.reset();
  }).join();
  EXPECT_EQ(testing::contexts_made_unasked(), before);
}

TEST_F(CudaContexts, NoneIsMadeByAThreadOfOurOwnThatHasLeftItsGpu) {
  const int before = testing::contexts_made_unasked();
  testing::must(start_thread("tcpx-test", [] {
    std::optional<Stream> stream;
    {
      const auto guard = DeviceGuard::enter(1);
      ASSERT_OK(guard.status());
      stream.emplace(testing::must(Stream::create()));
    }
    EXPECT_OK(stream->view().health());
  })).join();
  EXPECT_EQ(testing::contexts_made_unasked(), before);
}

TEST_F(CudaContexts, AGpuThatWasResetHasANewOne) {
  std::thread([] {
    ASSERT_OK(DeviceGuard::enter(1).status());
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  }).join();
  std::thread([] {
    const auto guard = DeviceGuard::enter(1);
    ASSERT_OK(guard.status());
    int device = -1;
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 1);
  }).join();
}

TEST_F(CudaContexts, AThreadKeepsWhatItHad) {
  std::thread([] {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    int device = -1;
    {
      const auto guard = DeviceGuard::enter(1);
      ASSERT_OK(guard.status());
      ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
      EXPECT_EQ(device, 1);
      ASSERT_OK(DeviceGuard::enter(1).status());
      ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
      EXPECT_EQ(device, 1) << "entered twice, left once";
    }
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
  }).join();
}

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
