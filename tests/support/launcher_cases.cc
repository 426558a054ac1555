// Requirements on an UnpackLauncher, on a real GPU or on the fake one of support/fake_cuda.cc. Skipped without either.
#include "device/unpack_launcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <optional>
#include <vector>

#include "device/unpacker_factory.h"
#include "tests/support/expect_log.h"
#include "tests/support/launcher_fixture.h"

namespace tcpx::testing {
namespace {

class GpuLauncher : public LauncherFixture {
 protected:
  /// Config of launchers that report their launches to the case.
  UnpackLauncher::Config watched() {
    UnpackLauncher::Config config;
    config.launch = [this](const LaunchPolicy& policy, const UnpackLaunch& launch, cudaStream_t stream) {
      policies_.push_back(policy);
      return launch_unpack(policy, launch, stream);
    };
    return config;
  }
  /// Delays later work on `stream`: code that does not wait for it overtakes it.
  static void keep_busy(StreamView stream) {
    const auto spin = [](void*) {
      const Deadline end = Deadline::after(std::chrono::milliseconds(20));
      while (!end.expired()) continue;
    };
    ASSERT_EQ(cudaLaunchHostFunc(stream.get(), spin, nullptr), cudaSuccess);
  }
  std::vector<LaunchPolicy> policies_;
};

TEST_F(GpuLauncher, ABatchIsOneLaunchWithOneTicket) {
  const auto launcher = make(watched());
  std::vector<DescriptorBlock> blocks;
  uint64_t fragments = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < kMaxBatchBlocks; ++i) {
    blocks.push_back(next_block(i * 9));  // the first has none
    fragments += i * 9;
    bytes += blocks.back().message_bytes();
  }
  const auto ticket = must(launcher->launch(blocks));
  ASSERT_OK(launcher->wait(ticket, soon()));
  EXPECT_EQ(policies_.size(), 1u);
  EXPECT_EQ(launcher->stats().launches, 1u);
  EXPECT_EQ(launcher->stats().requests, kMaxBatchBlocks);
  EXPECT_EQ(launcher->stats().fragments, fragments);
  EXPECT_EQ(launcher->stats().bytes, bytes);
  EXPECT_EQ(launcher->stats().errors, 0u);
  EXPECT_EQ(launcher->stats().device_time.count(), 0) << "not profiling";
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, WhereThePoolChangesANewLaunchBegins) {
  const auto launcher = make({});
  const std::vector<DescriptorBlock> blocks = {next_block(20), next_block(30), next_block(40, 300, 5), next_block(50)};
  ASSERT_OK(launcher->launch_sync(blocks, soon()));
  EXPECT_EQ(launcher->stats().launches, 3u);
  EXPECT_EQ(launcher->query(UnpackTicket{1}).status().code(), Code::kInvalidArgument) << "one ticket for all";
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, BlocksWithoutFragmentsHaveATicketAndNoLaunch) {
  const auto launcher = make({});
  const std::vector<DescriptorBlock> blocks(3);
  ASSERT_OK(launcher->launch_sync(blocks, soon()));
  EXPECT_EQ(launcher->stats().launches, 0u);
  EXPECT_EQ(launcher->stats().requests, 3u);
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, MoreBlocksThanABatchAreOneLaunchToo) {
  const auto launcher = make({});
  std::vector<DescriptorBlock> blocks;
  for (size_t i = 0; i < 5 * kMaxBatchBlocks; ++i) blocks.push_back(next_block(17));
  ASSERT_OK(launcher->launch_sync(blocks, soon()));
  EXPECT_EQ(launcher->stats().launches, 1u);
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, WhatCanNeverBeLaunchedIsRefusedAndHarmsNothing) {
  UnpackLauncher::Config config;
  config.list_capacity = 100;
  const auto launcher = make(config);
  EXPECT_EQ(launcher->launch({}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(launcher->query(UnpackTicket{0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(launcher->wait(UnpackTicket{0}, soon()).code(), Code::kInvalidArgument);
  const std::vector<DescriptorBlock> halves = {next_block(60), next_block(41)};
  EXPECT_EQ(launcher->launch(halves).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(launcher->stats().errors, 4u);
  for (const DescriptorBlock& half : halves) ASSERT_OK(launcher->launch_sync({&half, 1}, soon()));
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, NoSuchDevice) {
  EXPECT_EQ(UnpackLauncher::create(-1, *memory_, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(UnpackLauncher::create(memory_->device_count(), *memory_, {}).status().code(), Code::kInvalidArgument);
}

TEST_F(GpuLauncher, TheBlockBudgetIsKept) {
  for (const uint32_t budget : {1u, 2u, 7u}) {
    UnpackLauncher::Config config = watched();
    config.block_budget = budget;
    const auto launcher = make(config);
    const std::vector<DescriptorBlock> blocks = {next_block(1000, 2000), next_block(3)};
    ASSERT_OK(launcher->launch_sync(blocks, soon()));
    ASSERT_EQ(policies_.size(), 1u);
    EXPECT_GE(policies_[0].blocks, 1u);
    EXPECT_LE(policies_[0].blocks, budget);
    policies_.clear();
  }
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, ACallersStreamOrdersTheCopyBetweenItsOwnWork) {
  const auto launcher = make({});
  const Stream stream = make_stream();
  const auto after = must(memory_->allocate_mapped(0, kDestinationBytes));
  const std::vector<DescriptorBlock> blocks = {next_block(500, 2000), next_block(100)};
  ASSERT_NO_FATAL_FAILURE(keep_busy(stream.view()));
  // A copy that did not wait for this would be overwritten.
  ASSERT_EQ(cudaMemsetAsync(destination_.device(), static_cast<int>(kGuard), kDestinationBytes, stream.view().get()),
            cudaSuccess);
  const auto ticket = must(launcher->launch(blocks, stream.view()));
  // And a copy that this did not wait for would be missing.
  ASSERT_EQ(cudaMemcpyAsync(after.host(), destination_.device(), kDestinationBytes, cudaMemcpyDefault, stream.view().get()),
            cudaSuccess);
  ASSERT_TRUE(stream.view().synchronize().is_ok());
  expect_as_shadow(after.host());
  EXPECT_TRUE(must(launcher->query(ticket))) << "the stream is empty";
}

TEST_F(GpuLauncher, TheDefaultStreamIsAStreamToo) {
  const auto launcher = make({});
  const std::vector<DescriptorBlock> blocks = {next_block(50)};
  const auto ticket = must(launcher->launch(blocks, StreamView(nullptr)));
  ASSERT_OK(launcher->wait(ticket, soon()));
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, ACallersStreamMayGoWhileTheCopyRuns) {
  const auto launcher = make({});
  const std::vector<DescriptorBlock> blocks = {next_block(500, 2000)};
  std::optional<Stream> stream = make_stream();
  ASSERT_NO_FATAL_FAILURE(keep_busy(stream->view()));
  const auto ticket = must(launcher->launch(blocks, stream->view()));
  stream.reset();
  ASSERT_OK(launcher->wait(ticket, soon()));
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, ItsEndWaitsForCallersStreams) {
  auto launcher = make({});
  const Stream stream = make_stream();
  const std::vector<DescriptorBlock> blocks = {next_block(500, 2000)};
  ASSERT_NO_FATAL_FAILURE(keep_busy(stream.view()));
  ASSERT_TRUE(launcher->launch(blocks, stream.view()).is_ok());
  launcher.reset();
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, AStreamBeingCapturedIsRefused) {
  const auto launcher = make({});
  const Stream stream = make_stream();
  const std::vector<DescriptorBlock> blocks = {next_block(50)};
  ASSERT_EQ(cudaStreamBeginCapture(stream.view().get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Code refused = launcher->launch(blocks, stream.view()).status().code();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.view().get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(refused, Code::kInvalidArgument);
  ASSERT_OK(launcher->launch_sync(blocks, soon()));
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, ACaptureOfAnotherStreamGoesOnBesideIt) {
  const Stream captured = make_stream();
  const std::vector<DescriptorBlock> blocks = {next_block(50)};
  ASSERT_EQ(cudaStreamBeginCapture(captured.view().get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  {
    const auto launcher = make({});
    EXPECT_OK(launcher->launch_sync(blocks, soon()));
    EXPECT_OK(captured.view().is_captured().status());
  }
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal) << "the caller's thread has its mode back";
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(captured.view().get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, RandomLaunchesGoRoundASmallList) {
  UnpackLauncher::Config config;
  config.in_flight = 5;
  config.list_capacity = 256;
  const auto launcher = make(config);
  const Stream first = make_stream();
  const Stream second = make_stream();
  std::deque<UnpackTicket> tickets;
  size_t exhausted = 0;
  for (size_t i = 0; i < 1500; ++i) {
    std::vector<DescriptorBlock> blocks;
    for (uint32_t n = 1 + random_below(4); n > 0; --n) blocks.push_back(next_block(random_below(60), 64));
    const uint32_t where = random_below(3);
    for (;;) {
      const Result<UnpackTicket> ticket =
          where == 0 ? launcher->launch(blocks) : launcher->launch(blocks, where == 1 ? first.view() : second.view());
      if (ticket.is_ok()) {
        tickets.push_back(*ticket);
        break;
      }
      ASSERT_EQ(ticket.status().code(), Code::kExhausted) << ticket.status().to_string();
      ASSERT_FALSE(tickets.empty());
      ++exhausted;
      ASSERT_OK(launcher->wait(tickets.front(), soon()));
      tickets.pop_front();
    }
  }
  ASSERT_FALSE(tickets.empty());
  ASSERT_TRUE(launcher->wait(tickets.back(), soon()).is_ok());
  EXPECT_GT(exhausted, 100u);
  EXPECT_EQ(launcher->stats().errors, 0u) << "being full is no error";
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, ProfilingAddsUpTheTimeOnTheGpu) {
  UnpackLauncher::Config config;
  config.profile = true;
  const auto launcher = make(config);
  const std::vector<DescriptorBlock> blocks = {next_block(1000, 4000)};
  constexpr int kLaunches = 10;
  const TimePoint begin = Clock::steady().now();
  UnpackTicket last{};
  for (int i = 0; i < kLaunches; ++i) last = must(launcher->launch(blocks));
  EXPECT_EQ(launcher->stats().timed_bytes, 0u) << "nothing is seen done yet";
  ASSERT_TRUE(launcher->wait(last, soon()).is_ok());
  const Duration wall = Clock::steady().now() - begin;
  const LaunchStats& stats = launcher->stats();
  EXPECT_EQ(stats.timed_bytes, kLaunches * blocks[0].message_bytes());
  EXPECT_EQ(stats.timed_bytes, stats.bytes);
  EXPECT_GT(stats.device_time.count(), 0);
  EXPECT_LE(stats.device_time, wall + kLaunches * std::chrono::microseconds(1)) << "launches on one stream do not overlap";
  EXPECT_GT(stats.gb_per_second(), 0);
  EXPECT_LT(stats.gb_per_second(), 20000) << "no memory is that fast";
}

TEST_F(GpuLauncher, LaunchDebugLogsEachLaunchAndTheTotals) {
  ::setenv("UCCL_TCPX_LAUNCH_DEBUG", "1", 1);
  ::setenv("UCCL_TCPX_UNPACK_BLOCKS", "1", 1);
  auto unpacker = make_kernel_unpacker(0, *memory_);
  ::unsetenv("UCCL_TCPX_LAUNCH_DEBUG");
  ::unsetenv("UCCL_TCPX_UNPACK_BLOCKS");
  ASSERT_OK(unpacker);
  const std::vector<DescriptorBlock> blocks = {next_block(30), next_block(20), next_block(10, 300, 1)};
  const UnpackTicket ticket = must((*unpacker)->submit(blocks));
  ASSERT_TRUE(wait_until([&] { return must((*unpacker)->query(ticket)); }));
  EXPECT_TRUE(logged("unpack ticket 0: 3 requests, 60 fragments, "));
  EXPECT_TRUE(logged(" bytes, 1 x "));
  EXPECT_TRUE(logged(" threads, mixed, last of 2 launches, "));
  unpacker->reset();
  EXPECT_TRUE(logged("unpack kernel: 2 launches, 0 copies, 3 requests, 60 fragments, "));
}

TEST_F(GpuLauncher, AnErrorOfCudaStaysWithItsLauncher) {
  allow_log("cudaErrorInvalidValue");
  UnpackLauncher::Config config;
  // Refused by CUDA before anything runs.
  config.launch = [](LaunchPolicy policy, const UnpackLaunch& launch, cudaStream_t stream) {
    policy.blocks = 0;
    return launch_unpack(policy, launch, stream);
  };
  const auto broken = make(config);
  const auto healthy = make({});
  const std::vector<DescriptorBlock> blocks = {next_block(50)};
  const Status failed = broken->launch(blocks).status();
  EXPECT_EQ(failed.code(), Code::kCuda);
  EXPECT_EQ(failed.native(), cudaErrorInvalidValue);
  EXPECT_NE(failed.detail().find("cudaErrorInvalidValue"), std::string::npos) << failed.to_string();
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "the application must not find our error";

  EXPECT_EQ(broken->launch(blocks).status().to_string(), failed.to_string());
  EXPECT_EQ(broken->query(UnpackTicket{0}).status().to_string(), failed.to_string());
  EXPECT_EQ(broken->wait(UnpackTicket{0}, soon()).to_string(), failed.to_string());
  EXPECT_EQ(broken->launch_sync(blocks, soon()).to_string(), failed.to_string());
  EXPECT_EQ(broken->stats().errors, 5u);
  EXPECT_EQ(broken->stats().launches, 0u);

  ASSERT_OK(healthy->launch_sync(blocks, soon()));
  expect_destination_as_shadow();
}

TEST_F(GpuLauncher, WhenACallFailsNothingOfItRunsAnyMore) {
  allow_log("cudaErrorLaunchOutOfResources");
  UnpackLauncher::Config config;
  int calls = 0;
  config.launch = [&](const LaunchPolicy& policy, const UnpackLaunch& launch, cudaStream_t stream) {
    return ++calls == 3 ? cudaErrorLaunchOutOfResources : launch_unpack(policy, launch, stream);
  };
  const auto launcher = make(config);
  const auto healthy = make({});
  const Stream first = make_stream();
  const Stream second = make_stream();
  // The stream of the failing call finishes first.
  ASSERT_NO_FATAL_FAILURE(keep_busy(second.view()));
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(keep_busy(first.view()));
  const std::vector<DescriptorBlock> good = {next_block(50)};
  const std::vector<DescriptorBlock> two_runs = {next_block(50), next_block(50, 300, 5)};
  const auto older = must(launcher->launch(good, first.view()));
  const Status failed = launcher->launch(two_runs, second.view()).status();
  EXPECT_EQ(failed.native(), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(cudaStreamQuery(second.view().get()), cudaSuccess);
  EXPECT_EQ(launcher->query(older).status().to_string(), failed.to_string());
  // All but what could not be launched is in place, though without a wait for it.
  ASSERT_TRUE(healthy->launch_sync({&two_runs[1], 1}, soon()).is_ok());
  expect_destination_as_shadow();
}

/// Cases in which a stream is blocked for a while. Not for tools that make launches wait.
class HeldLauncher : public LauncherFixture {};

TEST_F(HeldLauncher, ATimeoutLeavesTheTicketAsItIs) {
  const auto launcher = make({});
  const Stream stream = make_stream();
  const std::vector<DescriptorBlock> blocks = {next_block(50)};
  Hold hold(stream.view());
  const auto ticket = must(launcher->launch(blocks, stream.view()));
  EXPECT_EQ(launcher->wait(ticket, shortly()).code(), Code::kTimeout);
  EXPECT_EQ(launcher->wait(ticket, shortly()).code(), Code::kTimeout);
  EXPECT_EQ(launcher->stats().errors, 0u);
  hold.let_go();
  ASSERT_OK(launcher->wait(ticket, soon()));
  EXPECT_TRUE(launcher->wait(ticket, Deadline::after(Duration::zero())).is_ok()) << "what is done needs no time";
  expect_destination_as_shadow();
}

TEST_F(HeldLauncher, TicketsOfSeveralStreamsAreReportedInOrder) {
  const auto launcher = make({});
  const Stream stream = make_stream();
  const std::vector<DescriptorBlock> blocks = {next_block(50)};
  const std::vector<DescriptorBlock> others = {next_block(50)};
  Hold hold(stream.view());
  const UnpackTicket first = must(launcher->launch(blocks, stream.view()));
  const UnpackTicket second = must(launcher->launch(others));
  EXPECT_EQ(launcher->wait(second, shortly()).code(), Code::kTimeout);
  hold.let_go();
  ASSERT_OK(launcher->wait(second, soon()));
  EXPECT_TRUE(must(launcher->query(first)));
  expect_destination_as_shadow();
}

TEST_F(HeldLauncher, FullSlotsAreExhaustedUntilTheOldestIsSeenDone) {
  UnpackLauncher::Config config;
  config.in_flight = 3;
  const auto launcher = make(config);
  const Stream stream = make_stream();
  std::vector<DescriptorBlock> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(next_block(50));
  Hold hold(stream.view());
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(launcher->launch({&blocks[i], 1}, stream.view()).is_ok());
  EXPECT_EQ(launcher->launch({&blocks[3], 1}, stream.view()).status().code(), Code::kExhausted);
  hold.let_go();
  ASSERT_TRUE(launcher->wait(UnpackTicket{0}, soon()).is_ok());
  const auto last = must(launcher->launch({&blocks[3], 1}, stream.view()));
  ASSERT_TRUE(launcher->wait(last, soon()).is_ok());
  EXPECT_EQ(launcher->stats().launches, 4u);
  expect_destination_as_shadow();
}

TEST_F(HeldLauncher, AFullListIsExhaustedUntilTheOldestIsSeenDone) {
  UnpackLauncher::Config config;
  config.list_capacity = 100;
  const auto launcher = make(config);
  const Stream stream = make_stream();
  const std::vector<DescriptorBlock> blocks = {next_block(60), next_block(40), next_block(1), next_block(100)};
  Hold hold(stream.view());
  ASSERT_TRUE(launcher->launch({&blocks[0], 1}, stream.view()).is_ok());
  ASSERT_TRUE(launcher->launch({&blocks[1], 1}, stream.view()).is_ok());
  EXPECT_EQ(launcher->launch({&blocks[2], 1}, stream.view()).status().code(), Code::kExhausted);
  hold.let_go();
  ASSERT_TRUE(launcher->wait(UnpackTicket{0}, soon()).is_ok());
  ASSERT_OK(launcher->launch({&blocks[2], 1}, stream.view()));
  EXPECT_EQ(launcher->launch({&blocks[3], 1}, stream.view()).status().code(), Code::kExhausted);
  ASSERT_OK(launcher->launch_sync({&blocks[3], 1}, soon()));
  expect_destination_as_shadow();
}

TEST_F(HeldLauncher, LaunchSyncKeepsItsDeadline) {
  std::optional<Hold> hold;
  UnpackLauncher::Config config;
  config.in_flight = 1;
  config.launch = [&](const LaunchPolicy& policy, const UnpackLaunch& launch, cudaStream_t stream) {
    if (!hold) hold.emplace(StreamView(stream));
    return launch_unpack(policy, launch, stream);
  };
  const auto launcher = make(config);
  const std::vector<DescriptorBlock> blocks = {next_block(50), next_block(50)};
  EXPECT_EQ(launcher->launch_sync({&blocks[0], 1}, shortly()).code(), Code::kTimeout);
  EXPECT_EQ(launcher->launch_sync({&blocks[1], 1}, shortly()).code(), Code::kTimeout) << "no room in time";
  EXPECT_EQ(launcher->stats().launches, 1u);
  hold->let_go();
  ASSERT_OK(launcher->launch_sync({&blocks[1], 1}, soon()));
  expect_destination_as_shadow();
}

}  // namespace
}  // namespace tcpx::testing
