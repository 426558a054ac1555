// Endpoints of one GPU with memory of another: by every verb, in every size, next to the other GPU's own streams. With the other
// GPU as a peer, where this machine makes it one, and out of reach; over a plugin that takes any memory, and over one with the
// rules of GPUDirect-TCPX. Skipped on a machine with fewer than two.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "base/text.h"
#include "device/cuda_handles.h"
#include "device/driver_entry.h"
#include "device/gpu_pattern.h"
#include "device/gpu_presence.h"
#include "device/signal_kernel.h"
#include "endpoint/endpoint_parts.h"
#include "measure/pattern.h"
#include "tests/support/counting_memory_ops.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/ok.h"
#include "tests/support/verbs.h"

namespace tcpx::testing {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kMemoryBytes = 8 * kMiB;
constexpr int kOwn = 0, kOther = 1;

/// The machine's memory, but no GPU reaches that of another.
class OutOfReach final : public CountingMemoryOps {
 public:
  explicit OutOfReach(std::shared_ptr<MemoryOps> memory) : CountingMemoryOps(*memory), kept_(std::move(memory)) {}
  bool reaches(int device, const void* address) override { return gpu_of(address) == device; }

 private:
  const std::shared_ptr<MemoryOps> kept_;
};

struct Way {
  bool peers;    ///< if the machine lets them
  bool steered;  ///< over a plugin with the vendor's rules
};
std::string name_of(const Way& way) {
  return concat(way.peers ? "Peers" : "OutOfReach", way.steered ? "Steered" : "");
}

class EndpointTwoGpus : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!memory_->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
    if (memory_->device_count() < 2) GTEST_SKIP() << "there is one GPU";
    ASSERT_TRUE(memory_->set_current_device(kOwn).is_ok());
    allow_log("the driver gives no dma-buf");
    if (!GetParam().peers) separate();
    flag_ = must(memory_->allocate_mapped(kOwn, 4096));
    for (Half* half : {&from_, &to_}) {
      for (const int gpu : {kOwn, kOther}) half->buffers[gpu] = must(memory_->allocate_device(gpu, kMemoryBytes));
      half->endpoint = make();
      ASSERT_NE(half->endpoint, nullptr);
      for (const int gpu : {kOwn, kOther})
        half->ids[gpu] = must(half->endpoint->register_memory(half->buffers[gpu].device(), kMemoryBytes));
    }
    std::tie(from_.conn, to_.conn) = connect_pair(*from_.endpoint, *to_.endpoint);
    for (const int gpu : {kOwn, kOther}) lanes_[gpu] = must(memory_->make_copy_lane(gpu));
  }
  void TearDown() override {
    if (!flag_) return;
    release();
    from_.endpoint.reset();
    to_.endpoint.reset();
    EXPECT_TRUE(memory_->set_current_device(kOwn).is_ok());
  }

  /// They are no peers any more, if a case before made them so: what touches the other's memory all the same fails.
  static void separate() {
    const cudaError_t separated = cudaDeviceDisablePeerAccess(kOther);
    ASSERT_TRUE(separated == cudaSuccess || separated == cudaErrorPeerAccessNotEnabled) << cudaGetErrorName(separated);
    (void)cudaGetLastError();
  }

  struct Half {
    MemoryBuffer buffers[2];
    std::unique_ptr<Endpoint> endpoint;
    ConnId conn{};
    MemoryId ids[2] = {};
    LocalRange range(int gpu, size_t off, size_t bytes) { return {ids[gpu], buffers[gpu].device() + off, bytes}; }
    End end(std::vector<LocalRange> ranges) { return {*endpoint, conn, std::move(ranges)}; }
  };

  std::unique_ptr<Endpoint> make() {
    EndpointConfig config = loopback_config();
    config.same_host = false;  // what the plugin is given is the matter
    EndpointParts parts = must(make_default_parts(config));
    if (!GetParam().peers) parts.memory = std::make_shared<OutOfReach>(parts.memory);
    FaultPolicy policy;
    policy.vendor_rules = GetParam().steered;
    policy.refuses = [this](const void* data, size_t, MemoryType) {
      if (memory_->gpu_of(data) == kOther) ++given_of_other_;
      return false;
    };
    below_.push_back(parts.plugin);
    parts.plugin = std::make_shared<LockedNetPlugin>(std::make_unique<FaultyNetPlugin>(*below_.back(), std::move(policy)));
    return must(EndpointMaker::make(std::move(parts), config));
  }

  /// By the endpoints' GPU, as the endpoints see it.
  bool reached(const void* memory) { return GetParam().peers && memory_->reaches(kOwn, memory); }

  void put(int gpu, std::byte* to, std::span<const std::byte> bytes) {
    ASSERT_TRUE(lanes_[gpu]->copy(to, bytes.data(), bytes.size()).is_ok());
  }
  std::vector<std::byte> get(int gpu, const std::byte* from, size_t bytes) {
    std::vector<std::byte> read(bytes);
    EXPECT_TRUE(lanes_[gpu]->copy(read.data(), from, bytes).is_ok());
    return read;
  }
  /// New bytes in all of the source's memory of that GPU. @return them
  std::vector<std::byte> refill(int gpu) {
    std::vector<std::byte> bytes(kMemoryBytes);
    fill_pattern(bytes, ++seed_);
    put(gpu, from_.buffers[gpu].device(), bytes);
    return bytes;
  }

  /// `stream` of the GPU that is current stands still until release.
  void hold(cudaStream_t stream) {
    std::atomic_ref(*reinterpret_cast<uint32_t*>(flag_.host())).store(0);
    ASSERT_EQ(launch_await_flag(reinterpret_cast<uint32_t*>(flag_.device()), 1, stream), cudaSuccess);
  }
  void release() { std::atomic_ref(*reinterpret_cast<uint32_t*>(flag_.host())).store(1); }

  const std::unique_ptr<MemoryOps> memory_ = make_machine_memory_ops();
  MemoryBuffer flag_;
  std::vector<std::shared_ptr<NetPlugin>> below_;
  std::atomic<int> given_of_other_{0};
  Half from_, to_;
  std::unique_ptr<CopyLane> lanes_[2];
  uint64_t seed_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Over, EndpointTwoGpus,
                         ::testing::Values(Way{true, false}, Way{true, true}, Way{false, false}, Way{false, true}),
                         [](const auto& way) { return name_of(way.param); });

// Whole memories are compared: what was to be written, and what was not.
TEST_P(EndpointTwoGpus, EverySizeByEveryVerbBetweenTheirMemories) {
  constexpr std::pair<int, int> kBetween[] = {{kOther, kOther}, {kOther, kOwn}, {kOwn, kOther}};
  // Inline, direct and packed: single ranges, a few, and many.
  constexpr std::pair<size_t, size_t> kShapes[] = {{1, 1},        {1, 4097},         {3, 1000},   {1, 16385},
                                                   {1, kMiB + 3}, {1, 5 * kMiB + 1}, {200, 3001}, {2, kMiB + 1}};
  for (const auto& [from_gpu, to_gpu] : kBetween) {
    for (const auto& [count, bytes] : kShapes) {
      for (const OperationKind verb : kVerbs) {
        SCOPED_TRACE(concat(name_of(verb), " of ", count, " x ", bytes, " from GPU ", from_gpu, " to GPU ", to_gpu));
        const std::vector<std::byte> source = refill(from_gpu);
        std::vector<std::byte> wanted(kMemoryBytes, std::byte{0xee});
        put(to_gpu, to_.buffers[to_gpu].device(), wanted);
        std::vector<LocalRange> from, to;
        for (size_t i = 0; i < count; ++i) {
          const size_t from_off = 4099 + i * (bytes + 5), to_off = 77 + (count - 1 - i) * (bytes + 3);
          from.push_back(from_.range(from_gpu, from_off, bytes));
          to.push_back(to_.range(to_gpu, to_off, bytes));
          std::copy_n(source.data() + from_off, bytes, wanted.data() + to_off);
        }
        const auto [sent, received] = move(verb, from_.end(from), to_.end(to));
        ASSERT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
        ASSERT_EQ(get(to_gpu, to_.buffers[to_gpu].device(), kMemoryBytes), wanted);
      }
    }
  }
  int possible = 0;
  ASSERT_EQ(cudaDeviceCanAccessPeer(&possible, kOwn, kOther), cudaSuccess);
  EXPECT_EQ(reached(to_.buffers[kOther].device()), GetParam().peers && possible != 0);
  EXPECT_EQ(given_of_other_ > 0, GetParam().peers && possible != 0 && !GetParam().steered);
  std::printf("GPU %d %s GPU %d; the plugin was given memory of the latter %d times\n", kOwn,
              possible != 0 ? "can reach" : "cannot reach", kOther, given_of_other_.load());
}

TEST_P(EndpointTwoGpus, RangesOfBothInOneOperation) {
  const bool both = reached(to_.buffers[kOther].device());
  for (const size_t bytes : {size_t{100}, size_t{20'000}, kMiB}) {
    const std::vector<std::byte> own = refill(kOwn), other = refill(kOther);
    const auto from = from_.end({from_.range(kOwn, 5, bytes), from_.range(kOther, 9, bytes)});
    const auto to = to_.end({to_.range(kOther, 11, bytes), to_.range(kOther, 11 + bytes, bytes)});
    const auto [sent, received] = move(OperationKind::kWrite, from, to);
    if (!both) {
      EXPECT_EQ(sent.code(), Code::kUnsupported) << sent.to_string();
      continue;
    }
    ASSERT_TRUE(sent.is_ok()) << sent.to_string();
    std::vector<std::byte> wanted(own.begin() + 5, own.begin() + 5 + static_cast<ptrdiff_t>(bytes));
    wanted.insert(wanted.end(), other.begin() + 9, other.begin() + 9 + static_cast<ptrdiff_t>(bytes));
    EXPECT_EQ(get(kOther, to_.buffers[kOther].device() + 11, 2 * bytes), wanted);
  }
}

// The stream is the other GPU's: one of its own, and its default stream.
TEST_P(EndpointTwoGpus, MemoryIsReadOnlyBehindAStreamOfItsGpu) {
  for (const bool by_default : {false, true}) {
    for (const size_t bytes : {size_t{64}, 2 * kMiB}) {
      SCOPED_TRACE(concat(bytes, by_default ? " bytes behind the default stream" : " bytes behind a stream"));
      const std::vector<std::byte> source = refill(kOther);
      const auto local = from_.end({from_.range(kOther, 0, bytes)}), remote = to_.end({to_.range(kOther, 0, bytes)});
      const auto places = remote.advertised();
      // Staging and copiers are made by a first transfer, before anything stands still.
      ASSERT_TRUE(local.wait(start(*from_.endpoint, OperationKind::kWrite, from_.conn, local.ranges, places)).is_ok());
      ASSERT_TRUE(memory_->set_current_device(kOther).is_ok());
      const auto own = must(Stream::create());
      const cudaStream_t stream = by_default ? nullptr : own.view().get();
      hold(stream);
      // The bytes to transfer come into the source only when the stream goes on.
      std::byte* const begin = from_.buffers[kOther].device();
      ASSERT_EQ(cudaMemcpyAsync(begin, begin + 4 * kMiB, bytes, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
      ASSERT_TRUE(memory_->set_current_device(kOwn).is_ok());
      const auto write = start(*from_.endpoint, OperationKind::kWrite, from_.conn, local.ranges, places,
                               {.after_stream = static_cast<void*>(stream)});
      ASSERT_TRUE(write.is_ok()) << write.status().to_string();
      EXPECT_EQ(from_.endpoint->wait(*write, std::chrono::milliseconds(30)).code(), Code::kTimeout);
      release();
      const Status status = local.wait(write);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      const std::vector<std::byte> wanted(source.begin() + 4 * kMiB, source.begin() + 4 * kMiB + static_cast<ptrdiff_t>(bytes));
      EXPECT_EQ(get(kOther, to_.buffers[kOther].device(), bytes), wanted);
    }
  }
}

TEST_P(EndpointTwoGpus, AStreamOfTheOtherGpuWaitsForAReceive) {
  for (const size_t bytes : {size_t{64}, 2 * kMiB}) {
    const std::vector<std::byte> source = refill(kOther);
    const auto from = from_.end({from_.range(kOther, 0, bytes)}), to = to_.end({to_.range(kOther, 0, bytes)});
    ASSERT_TRUE(move(OperationKind::kSend, from, to).second.is_ok());  // makes what the first transfer makes
    put(kOther, to_.buffers[kOther].device(), std::vector<std::byte>(bytes, std::byte{0xee}));
    ASSERT_TRUE(memory_->set_current_device(kOther).is_ok());
    const auto stream = must(Stream::create());
    ASSERT_TRUE(memory_->set_current_device(kOwn).is_ok());
    const auto receive = to_.endpoint->recv_async(to_.conn, to.ranges, {.completion_event = true});
    ASSERT_TRUE(receive.is_ok()) << receive.status().to_string();
    const auto event = must(to_.endpoint->completion_event(*receive));
    ASSERT_TRUE(memory_->set_current_device(kOther).is_ok());
    ASSERT_EQ(cudaStreamWaitEvent(stream.view().get(), static_cast<cudaEvent_t>(event), 0), cudaSuccess);
    // Copies what the receive brings, although it is given to the GPU before there is anything.
    std::byte* const begin = to_.buffers[kOther].device();
    ASSERT_EQ(cudaMemcpyAsync(begin + 4 * kMiB, begin, bytes, cudaMemcpyDeviceToDevice, stream.view().get()), cudaSuccess);
    ASSERT_TRUE(memory_->set_current_device(kOwn).is_ok());
    const Status sent = from.wait(from_.endpoint->send_async(from_.conn, from.ranges));
    ASSERT_TRUE(sent.is_ok()) << sent.to_string();
    ASSERT_TRUE(stream.view().synchronize().is_ok());
    EXPECT_EQ(get(kOther, begin + 4 * kMiB, bytes), std::vector(source.begin(), source.begin() + static_cast<ptrdiff_t>(bytes)));
    EXPECT_TRUE(to.wait(receive).is_ok());
  }
}

// The next kernel of the GPU that owns the memory sees all of it, and what its kernel has written is what is read.
TEST_P(EndpointTwoGpus, DoneMeansAppliedForKernelsOfTheOwner) {
  const auto pattern = must(GpuPattern::create(kOther, *memory_));
  for (int round = 0; round < 100; ++round) {
    const size_t bytes = round % 3 == 0 ? 8 : round % 3 == 1 ? 12345 : kMiB / 2 + 7;
    ASSERT_TRUE(pattern->fill(from_.buffers[kOther].device(), bytes, ++seed_).is_ok());
    ASSERT_TRUE(pattern->fill(to_.buffers[kOther].device(), bytes, ~seed_).is_ok());
    const Status status =
        move(OperationKind::kWrite, from_.end({from_.range(kOther, 0, bytes)}), to_.end({to_.range(kOther, 0, bytes)})).first;
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    const auto check = pattern->check(to_.buffers[kOther].device(), bytes, seed_);
    ASSERT_TRUE(check.is_ok()) << check.status().to_string();
    ASSERT_EQ(check->wrong, 0u) << bytes << " bytes in round " << round;
  }
}

// Such memory has rights of its own, which being a peer does not bring.
TEST_P(EndpointTwoGpus, MemoryOfAPoolOfTheOtherGpu) {
  ASSERT_TRUE(memory_->set_current_device(kOther).is_ok());
  const auto stream = must(Stream::create());
  void* memory = nullptr;
  ASSERT_EQ(cudaMallocAsync(&memory, 2 * kMiB, stream.view().get()), cudaSuccess);
  ASSERT_TRUE(stream.view().synchronize().is_ok());
  ASSERT_TRUE(memory_->set_current_device(kOwn).is_ok());
  std::printf("memory of a pool of GPU %d is %s by GPU %d\n", kOther, reached(memory) ? "reached" : "not reached", kOwn);
  const auto id = must(to_.endpoint->register_memory(memory, 2 * kMiB));
  for (const size_t bytes : {size_t{64}, kMiB + 5}) {
    for (const OperationKind verb : kVerbs) {
      const std::vector<std::byte> source = refill(kOwn);
      const auto [sent, received] =
          move(verb, from_.end({from_.range(kOwn, 3, bytes)}), to_.end({{id, static_cast<std::byte*>(memory) + 1, bytes}}));
      ASSERT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
      EXPECT_EQ(get(kOther, static_cast<std::byte*>(memory) + 1, bytes),
                std::vector(source.begin() + 3, source.begin() + 3 + static_cast<ptrdiff_t>(bytes)));
    }
  }
  EXPECT_TRUE(to_.endpoint->deregister(id).is_ok());
  EXPECT_EQ(cudaFreeAsync(memory, stream.view().get()), cudaSuccess);
  EXPECT_TRUE(stream.view().synchronize().is_ok());
}

/// Ends the process, which is a death test's, if the first GPU has a context.
void expect_first_gpu_alone(const char* when) {
  using StateFunction = cudaError_t (*)(int device, unsigned* flags, int* is_active);  // of a CUresult, with the same numbers
  static const auto state = find_driver_function<StateFunction>("cuDevicePrimaryCtxGetState", 7000);
  unsigned flags = 0;
  int is_active = 0;
  const cudaError_t error = state(0, &flags, &is_active);
  if (error == cudaSuccess && is_active == 0) return;
  std::fprintf(stderr, "the first GPU has a context %s (%d)\n", when, error);
  std::_Exit(2);
}

/// Moves 300 MiB between two endpoints of the last GPU, on a thread that has selected none, and expects no context on the first GPU.
void use_last_gpu() {
  expect_first_gpu_alone("before all");
  const auto memory = make_machine_memory_ops();
  EndpointConfig config = loopback_config();
  config.gpu_idx = memory->device_count() - 1;
  config.same_host = false;
  const auto lane = must(memory->make_copy_lane(config.gpu_idx));
  MemoryBuffer from = must(memory->allocate_device(config.gpu_idx, kMiB)),
               to = must(memory->allocate_device(config.gpu_idx, kMiB));
  std::vector<std::byte> bytes(kMiB), got(kMiB);
  fill_pattern(bytes, 7);
  ASSERT_OK(lane->copy(from.device(), bytes.data(), kMiB));
  expect_first_gpu_alone("after a copy");
  const auto sender = must(Endpoint::create(config)), receiver = must(Endpoint::create(config));
  expect_first_gpu_alone("after the endpoints");
  auto accepted = std::async(std::launch::async, [&] { return receiver->accept(kCallTime); });
  const ConnId there = must(sender->add_remote_endpoint(receiver->get_metadata())), here = must(accepted.get()).conn;
  const LocalRange source{must(sender->register_memory(from.device(), kMiB)), from.device(), kMiB};
  const LocalRange target{must(receiver->register_memory(to.device(), kMiB)), to.device(), kMiB};
  expect_first_gpu_alone("after the connection");
  for (int round = 0; round < 300; ++round) {
    const OperationId receive = must(receiver->recv_async(here, target));
    ASSERT_OK(sender->send(there, source));
    ASSERT_OK(receiver->wait(receive));
  }
  expect_first_gpu_alone("after the messages");
  ASSERT_OK(lane->copy(got.data(), to.device(), kMiB));
  ASSERT_EQ(got, bytes);
}

// In a process of its own, which tests/support/gpu_warm_up.cc leaves as it is.
TEST(EndpointOfTheLastGpu, LeavesTheFirstOneAlone) {
  if (!gpu_count().is_ok() || *gpu_count() < 2) GTEST_SKIP() << "there are no two GPUs";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto use = [] {
    std::thread(use_last_gpu).join();
    expect_first_gpu_alone("at the end");
    std::fflush(stdout);
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(use(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tcpx::testing
