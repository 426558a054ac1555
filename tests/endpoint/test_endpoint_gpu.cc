// Endpoints over a real GPU: memory of every kind of transfer, the place of transfers between the application's kernels and
// copies, and that "done" means applied; memory under the rules of GPUDirect-TCPX and of the driver. Skipped without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>
#include <vector>

#include "base/environment.h"
#include "base/memory_ops.h"
#include "base/text.h"
#include "device/cuda_handles.h"
#include "device/gpu_pattern.h"
#include "device/gpu_presence.h"
#include "device/signal_kernel.h"
#include "endpoint/endpoint_parts.h"
#include "measure/pattern.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/expect_log.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/verbs.h"

namespace tcpx::testing {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kMemoryBytes = 8 * kMiB;

class EndpointGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!memory_->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
    ASSERT_TRUE(memory_->set_current_device(0).is_ok());
    pattern_ = GpuPattern::create(0, *memory_).value();
    flag_ = memory_->allocate_mapped(0, 4096).value();
    source_ = memory_->allocate_device(0, kMemoryBytes).value();
    target_ = memory_->allocate_device(0, kMemoryBytes).value();
    from_ = make_endpoint(config());
    to_ = make_endpoint(config());
    ASSERT_TRUE(from_ && to_);
    std::tie(there_, here_) = connect_pair(*from_, *to_);
    from_memory_ = from_->register_memory(source_.device(), kMemoryBytes).value();
    to_memory_ = to_->register_memory(target_.device(), kMemoryBytes).value();
    slot_ = to_->advertise(here_, {to_memory_, target_.device(), kMemoryBytes}).value();
  }
  void TearDown() override {
    if (flag_) release();
    from_.reset();
    to_.reset();
  }

  /// New bytes at the source, none of them at the target.
  void refill() {
    ++seed_;
    ASSERT_TRUE(pattern_->fill(source_.device(), kMemoryBytes, seed_).is_ok());
    ASSERT_TRUE(pattern_->fill(target_.device(), kMemoryBytes, ~seed_).is_ok());
  }
  LocalRange source(size_t off, size_t bytes) { return {from_memory_, source_.device() + off, bytes}; }
  LocalRange target(size_t off, size_t bytes) { return {to_memory_, target_.device() + off, bytes}; }
  void expect_arrived(size_t to_off, size_t bytes, size_t from_off) { expect_at(to_off, bytes, seed_, from_off); }
  void expect_untouched(size_t to_off, size_t bytes) { expect_at(to_off, bytes, ~seed_, to_off); }
  void expect_at(size_t to_off, size_t bytes, uint64_t seed, size_t from_off) {
    if (bytes == 0) return;
    const auto check = pattern_->check(target_.device() + to_off, bytes, seed, from_off);
    ASSERT_TRUE(check.is_ok()) << check.status().to_string();
    EXPECT_EQ(check->wrong, 0u) << bytes << " bytes at " << to_off;
  }
  /// `stream` stands still until release.
  void hold(const Stream& stream) {
    std::atomic_ref(*reinterpret_cast<uint32_t*>(flag_.host())).store(0);
    ASSERT_EQ(launch_await_flag(reinterpret_cast<uint32_t*>(flag_.device()), 1, stream.view().get()), cudaSuccess);
  }
  void release() { std::atomic_ref(*reinterpret_cast<uint32_t*>(flag_.host())).store(1); }

  /// By all verbs, from one end's memory to the other's.
  void expect_moves(void* from, void* to, size_t bytes) {
    const LocalRange local{from_->register_memory(from, bytes).value(), from, bytes};
    const LocalRange remote{to_->register_memory(to, bytes).value(), to, bytes};
    const auto lane = memory_->make_copy_lane(0).value();
    std::vector<std::byte> wanted(bytes), arrived(bytes);
    for (const OperationKind verb : kVerbs) {
      SCOPED_TRACE(concat(name_of(verb), " of ", bytes));
      fill_pattern(wanted, ++seed_);
      ASSERT_TRUE(lane->copy(from, wanted.data(), bytes).is_ok());
      const auto [sent, received] = move(verb, {*from_, there_, {local}}, {*to_, here_, {remote}});
      EXPECT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
      ASSERT_TRUE(lane->copy(arrived.data(), to, bytes).is_ok());
      EXPECT_EQ(arrived, wanted);
    }
    EXPECT_TRUE(from_->deregister(local.memory).is_ok() && to_->deregister(remote.memory).is_ok());
  }
  void expect_every_size_moves() {
    for (const size_t bytes : {size_t{1}, size_t{8}, size_t{4097}, size_t{16384}, size_t{16385}, kMiB + 3, 5 * kMiB + 1}) {
      const size_t from_off = 4099, to_off = 77;
      for (const OperationKind verb : kVerbs) {
        refill();
        const auto [sent, received] =
            move(verb, {*from_, there_, {source(from_off, bytes)}}, {*to_, here_, {target(to_off, bytes)}});
        ASSERT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
        expect_arrived(to_off, bytes, from_off);
        expect_untouched(0, to_off);
        expect_untouched(to_off + bytes, 4096);
      }
    }
  }
  EndpointConfig config() const {
    EndpointConfig config = loopback_config();
    config.same_host = same_host_;
    return config;
  }

  bool same_host_ = false;  // else over TCP
  std::unique_ptr<MemoryOps> memory_ = make_machine_memory_ops();
  std::unique_ptr<GpuPattern> pattern_;
  MemoryBuffer flag_, source_, target_;
  std::unique_ptr<Endpoint> from_, to_;
  ConnId there_{}, here_{};
  MemoryId from_memory_{}, to_memory_{};
  RemoteSlot slot_{};
  uint64_t seed_ = 0;
};

/// Both ends in one process, over TCP and as the library does it on one host.
class EndpointGpu : public EndpointGpuTest, public ::testing::WithParamInterface<bool> {
 protected:
  EndpointGpu() { same_host_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(, EndpointGpu, ::testing::Bool(), [](const auto& way) { return way.param ? "SameHost" : "OverTcp"; });

TEST_P(EndpointGpu, EverySizeByEveryVerb) {
  expect_every_size_moves();
}

/// Both ends sum what they move.
class EndpointGpuSums : public EndpointGpu {
 protected:
  EndpointGpuSums() { EXPECT_TRUE(environment_set(Variable::kChecksum, "on").is_ok()); }
  ~EndpointGpuSums() override { EXPECT_TRUE(environment_set(Variable::kChecksum, "").is_ok()); }
};
INSTANTIATE_TEST_SUITE_P(, EndpointGpuSums, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "SameHost" : "OverTcp"; });

TEST_P(EndpointGpuSums, EverySizeByEveryVerb) {
  expect_every_size_moves();
}

TEST_P(EndpointGpu, ACaptureOfTheApplicationSurvivesAllOfIt) {
  std::vector<std::byte> host(3 * kMiB);
  const MemoryBuffer gpu = memory_->allocate_device(0, host.size()).value(),
                     other = memory_->allocate_device(0, host.size()).value();
  const Stream captured = Stream::create().value();
  ASSERT_EQ(cudaStreamBeginCapture(captured.view().get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  // Its threads come and go, too.
  const auto near = make_endpoint(config()), far = make_endpoint(config());
  EXPECT_TRUE(near && far);
  if (near && far) connect_pair(*near, *far);
  for (const size_t bytes : {size_t{8}, size_t{20000}, host.size()}) {
    expect_moves(gpu.device(), other.device(), bytes);
    expect_moves(host.data(), gpu.device(), bytes);
    expect_moves(gpu.device(), host.data(), bytes);
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured.view().get(), &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_P(EndpointGpu, ScatteredRangesKeepTheirNeighbours) {
  constexpr size_t kRange = 3001, kStride = 4096, kCount = 1000;
  refill();
  std::vector<LocalRange> local;
  std::vector<RemoteRange> remote;
  for (size_t i = 0; i < kCount; ++i) {
    local.push_back(source(i * 37 % kCount * kStride + 5, kRange));
    remote.push_back({slot_, i * 11 % kCount * kStride + 9});
  }
  const Status status = from_->write(there_, local, remote);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  for (size_t i = 0; i < kCount; i += 13) {
    const size_t to_off = i * 11 % kCount * kStride + 9;
    expect_arrived(to_off, kRange, i * 37 % kCount * kStride + 5);
    expect_untouched(to_off + kRange, kStride - kRange - 9);
  }
}

TEST_P(EndpointGpu, MemoryIsReadOnlyBehindTheStream) {
  for (const size_t bytes : {size_t{64}, 2 * kMiB}) {
    refill();
    auto stream = Stream::create().value();
    hold(stream);
    // The bytes to transfer come into the source only when the stream goes on.
    ASSERT_EQ(
        cudaMemcpyAsync(source_.device(), source_.device() + 4 * kMiB, bytes, cudaMemcpyDeviceToDevice, stream.view().get()),
        cudaSuccess);
    const LocalRange local = source(0, bytes);
    const RemoteRange remote{slot_, 0};
    const auto write = from_->write_async(there_, local, remote, {.after_stream = stream.view().get()});
    ASSERT_TRUE(write.is_ok()) << write.status().to_string();
    EXPECT_EQ(from_->wait(*write, std::chrono::milliseconds(30)).code(), Code::kTimeout);
    release();
    const Status status = from_->wait(*write);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    expect_arrived(0, bytes, 4 * kMiB);
  }
}

TEST_P(EndpointGpu, AStreamWaitsForAReceive) {
  for (const size_t bytes : {size_t{64}, 2 * kMiB}) {
    refill();
    const LocalRange remote = target(0, bytes), local = source(0, bytes);
    const auto receive = to_->recv_async(here_, remote, {.completion_event = true});
    ASSERT_TRUE(receive.is_ok()) << receive.status().to_string();
    const auto event = to_->completion_event(*receive);
    ASSERT_TRUE(event.is_ok()) << event.status().to_string();
    auto stream = Stream::create().value();
    ASSERT_EQ(cudaStreamWaitEvent(stream.view().get(), static_cast<cudaEvent_t>(*event), 0), cudaSuccess);
    // Copies what the receive brings, although it is given to the GPU before there is anything.
    ASSERT_EQ(
        cudaMemcpyAsync(target_.device() + 4 * kMiB, target_.device(), bytes, cudaMemcpyDeviceToDevice, stream.view().get()),
        cudaSuccess);
    const Status sent = from_->send(there_, {&local, 1});
    ASSERT_TRUE(sent.is_ok()) << sent.to_string();
    ASSERT_TRUE(stream.view().synchronize().is_ok());
    expect_arrived(4 * kMiB, bytes, 0);
    EXPECT_TRUE(to_->wait(*receive).is_ok());
  }
}

TEST_P(EndpointGpu, AnEventFiresForAReceiveThatIsGivenUp) {
  const LocalRange remote = target(0, 64);
  const auto receive = to_->recv_async(here_, remote, {.completion_event = true});
  ASSERT_TRUE(receive.is_ok()) << receive.status().to_string();
  auto stream = Stream::create().value();
  ASSERT_EQ(cudaStreamWaitEvent(stream.view().get(), static_cast<cudaEvent_t>(*to_->completion_event(*receive)), 0), cudaSuccess);
  ASSERT_TRUE(to_->cancel(*receive).is_ok());
  EXPECT_TRUE(stream.view().synchronize().is_ok());
  EXPECT_EQ(to_->wait(*receive).code(), Code::kCancelled);
}

// The next kernel sees all of it, again and again, in whatever way it came.
TEST_P(EndpointGpu, DoneMeansApplied) {
  for (int round = 0; round < 200; ++round) {
    refill();
    const size_t bytes = round % 3 == 0 ? 8 : round % 3 == 1 ? 12345 : kMiB / 2 + 7;
    const LocalRange local = source(0, bytes);
    const RemoteRange remote{slot_, 0};
    ASSERT_TRUE(from_->write(there_, {&local, 1}, {&remote, 1}).is_ok());
    expect_arrived(0, bytes, 0);
    if (HasFailure()) return;
  }
}

/// Over a plugin with the vendor's rules for registrations, where the driver itself is asked what it exports to a NIC.
class SteeredGpu : public EndpointGpuTest {
 protected:
  void SetUp() override {
    if (!memory_->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
    ASSERT_NO_FATAL_FAILURE(EndpointGpuTest::SetUp());
    from_.reset();
    to_.reset();
    from_ = make_steered();
    to_ = make_steered();
    ASSERT_TRUE(from_ && to_);
    std::tie(there_, here_) = connect_pair(*from_, *to_);
  }
  std::unique_ptr<Endpoint> make_steered() {
    EndpointParts parts = make_default_parts(config()).value();
    const FaultPolicy policy{.vendor_rules = true, .refuses = [this](const void* data, size_t bytes, MemoryType type) {
                               if (type == MemoryType::kHost) return false;
                               auto* const begin = static_cast<std::byte*>(const_cast<void*>(data));
                               return !memory_->check_export(0, {begin, bytes}).is_ok();
                             }};
    below_.push_back(parts.plugin);
    auto faulty = std::make_unique<FaultyNetPlugin>(*parts.plugin, policy);
    rules_.push_back(faulty.get());
    parts.plugin = std::make_shared<LockedNetPlugin>(std::move(faulty));
    auto made = EndpointMaker::make(std::move(parts), config());
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return made.is_ok() ? std::move(*made) : nullptr;
  }
  uint64_t refusals() const { return rules_[0]->refusals() + rules_[1]->refusals(); }
  std::vector<std::shared_ptr<NetPlugin>> below_;
  std::vector<FaultyNetPlugin*> rules_;
};

TEST_F(SteeredGpu, A2_TwentyOddSizesAndAlignmentsOfGpuMemory) {
  size_t bytes = 16385;
  for (size_t i = 0; i < 20; ++i, bytes = bytes * 4 / 3 + 1) {
    const size_t from_off = i * 411 % 4096 + 1, to_off = i * 1237 % 4096 + 3;
    expect_moves(source_.device() + from_off, target_.device() + to_off, bytes);
  }
  EXPECT_EQ(refusals(), 0u);
}

TEST_F(SteeredGpu, A2_SmallAllocationsThatShareTheirPages) {
  void* small[4] = {};
  for (void*& memory : small) ASSERT_EQ(cudaMalloc(&memory, 20001), cudaSuccess);
  expect_moves(small[0], small[1], 20001);
  expect_moves(small[2], small[3], 20001);
  EXPECT_EQ(refusals(), 0u);
  for (void* const memory : small) EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(SteeredGpu, A2_MemoryThatTheDriverDoesNotExportIsStaged) {
  allow_log("the driver gives no dma-buf");
  auto stream = Stream::create().value();
  void* from = nullptr;
  void* to = nullptr;
  ASSERT_EQ(cudaMallocAsync(&from, kMiB + 7, stream.view().get()), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&to, kMiB + 7), cudaSuccess);
  ASSERT_TRUE(stream.view().synchronize().is_ok());
  expect_moves(from, to, kMiB + 7);
  EXPECT_EQ(refusals(), 0u) << "the plugin is not asked";
  EXPECT_EQ(cudaFree(to), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(from, stream.view().get()), cudaSuccess);
  EXPECT_TRUE(stream.view().synchronize().is_ok());
}

TEST_F(SteeredGpu, A3_HostMemoryThatIsNotPinned) {
  std::vector<std::byte> from(20 * kMiB + 9), to(20 * kMiB + 9);
  for (const size_t bytes : {size_t{100}, size_t{16385}, kMiB + 3, 20 * kMiB + 9}) {
    expect_moves(from.data(), to.data(), bytes);
    if (bytes < kMemoryBytes) {
      expect_moves(source_.device() + 5, to.data(), bytes);
      expect_moves(from.data(), target_.device() + 5, bytes);
    }
  }
  EXPECT_EQ(refusals(), 0u);
}

// The driver's answers, for people: whole pages or not, and pages that allocations share.
TEST(DriverExports, A2_WholePagesAndNothingElse) {
  const auto memory = make_machine_memory_ops();
  if (!memory->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
  allow_log("the driver gives no dma-buf");
  ASSERT_TRUE(memory->set_current_device(0).is_ok());
  const auto ask = [&](const char* what, void* begin, size_t bytes) {
    const Status status = memory->check_export(0, {static_cast<std::byte*>(begin), bytes});
    std::printf("%-60s %8zu bytes at %p: %s\n", what, bytes, begin, status.is_ok() ? "exported" : status.to_string().c_str());
    return status.is_ok();
  };
  void* large = nullptr;
  void* small[3] = {};
  ASSERT_EQ(cudaMalloc(&large, 8 * kMiB), cudaSuccess);
  for (void*& each : small) ASSERT_EQ(cudaMalloc(&each, 5000), cudaSuccess);
  auto* const first = static_cast<std::byte*>(large);
  EXPECT_TRUE(ask("all of an allocation", first, 8 * kMiB));
  EXPECT_TRUE(ask("a page in the middle", first + kMiB, 4096));
  (void)ask("no whole pages", first, 4097);
  (void)ask("one byte", first, 1);
  (void)ask("a begin within a page", first + 1, 4096);
  (void)ask("both", first + 1, 4095);
  for (void* const each : small) {
    const Pages pages = whole_pages(each, 5000);
    EXPECT_TRUE(ask("the pages of an allocation of 5000 bytes", pages.begin, pages.bytes));
  }
  const auto [low, high] = std::minmax_element(std::begin(small), std::end(small));
  const Pages all = whole_pages(*low, static_cast<size_t>(static_cast<std::byte*>(*high) - static_cast<std::byte*>(*low)) + 5000);
  (void)ask("the pages of three of them", all.begin, all.bytes);
  for (void* const each : small) EXPECT_EQ(cudaFree(each), cudaSuccess);
  EXPECT_EQ(cudaFree(large), cudaSuccess);
}

TEST_P(EndpointGpu, BetweenHostAndGpuMemory) {
  std::vector<std::byte> from(20 * kMiB + 9), to(20 * kMiB + 9);
  for (const size_t bytes : {size_t{100}, size_t{16385}, kMiB + 3, 7 * kMiB + 5}) {
    expect_moves(source_.device() + 5, to.data(), bytes);
    expect_moves(from.data(), target_.device() + 5, bytes);
    expect_moves(source_.device() + 5, target_.device() + 3, bytes);
  }
  expect_moves(from.data(), to.data(), from.size());
  const auto nics = stats_of(*from_, there_).nics;
  const bool on_host = std::all_of(nics.begin(), nics.end(), [](const NicStats& nic) { return nic.bytes_sent == 0; });
  EXPECT_EQ(on_host, GetParam());
}

// At both ends, and with neighbours that stay as they were.
TEST_P(EndpointGpu, ScatteredBetweenHostAndGpuMemory) {
  constexpr size_t kRange = 3001, kStride = 4096, kCount = 1000;
  std::vector<std::byte> host(kMemoryBytes);
  const MemoryId id = to_->register_memory(host.data(), host.size()).value();
  const RemoteSlot slot = to_->advertise(here_, {id, host.data(), host.size()}).value();
  refill();
  std::vector<LocalRange> local;
  std::vector<RemoteRange> there;
  for (size_t i = 0; i < kCount; ++i) {
    local.push_back(source(i * 37 % kCount * kStride + 5, kRange));
    there.push_back({slot, i * 11 % kCount * kStride + 9});
  }
  ASSERT_TRUE(from_->write(there_, local, there).is_ok());
  std::vector<std::byte> wanted(kMemoryBytes), source_bytes(kMemoryBytes);
  ASSERT_TRUE(memory_->make_copy_lane(0).value()->copy(source_bytes.data(), source_.device(), kMemoryBytes).is_ok());
  for (size_t i = 0; i < kCount; ++i)
    std::copy_n(source_bytes.begin() + static_cast<ptrdiff_t>(i * 37 % kCount * kStride + 5), kRange,
                wanted.begin() + static_cast<ptrdiff_t>(i * 11 % kCount * kStride + 9));
  EXPECT_TRUE(wanted == host);
  ASSERT_TRUE(pattern_->fill(source_.device(), kMemoryBytes, ~seed_).is_ok());
  ASSERT_TRUE(from_->read(there_, local, there).is_ok());
  for (size_t i = 0; i < kCount; i += 7) {
    const size_t at = i * 37 % kCount * kStride + 5;
    const auto back = pattern_->check(source_.device() + at, kRange, seed_, at);
    ASSERT_TRUE(back.is_ok());
    EXPECT_EQ(back->wrong, 0u) << at;
  }
}

TEST_P(EndpointGpu, HostAndGpuMemoryDoNotMix) {
  std::vector<std::byte> host(64);
  const MemoryId id = from_->register_memory(host.data(), host.size()).value();
  const LocalRange mixed[] = {source(0, 64), {id, host.data(), 64}};
  EXPECT_EQ(from_->send_async(there_, mixed).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(from_->register_memory(host.data(), 64, MemoryType::kCuda).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(from_->register_memory(source_.device(), 64, MemoryType::kHost).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx::testing
