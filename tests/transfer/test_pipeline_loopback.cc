// The pipeline over the software plugin's real sockets, bare and with injected faults.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "device/unpacker_factory.h"
#include "measure/pattern.h"
#include "tests/support/expect_log.h"
#include "tests/support/faulty_net_plugin.h"
#include "transfer/handshake.h"
#include "transfer/local_machine.h"
#include "transfer/run.h"

namespace tcpx {
namespace {

using std::chrono::seconds;
using testing::FaultPolicy;
using testing::FaultyNetPlugin;

Deadline soon() {
  return Deadline::after(seconds(50));
}

// Both ends in this process, each with its own memory. The sender runs in a thread of its own.
class PipelineLoopback : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = LocalMachine::create("embedded");
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    endpoint_ = std::make_unique<LocalMachine>(std::move(*made));
    unpacker_ = endpoint_->make_unpacker(UnpackKind::kHost, 0).value();
    lane_ = endpoint_->memory->make_copy_lane(0).value();
  }

  void connect(NetPlugin& send_plugin, NetPlugin& recv_plugin, MemoryType type, size_t bytes, uint32_t chunk_bytes) {
    MemoryOps& memory = *endpoint_->memory;
    source_ = memory.allocate_mapped(0, bytes).value();
    target_ = memory.allocate_mapped(0, bytes).value();
    Listener listener = Listener::create(recv_plugin, 0).value();
    Comm send_comm = connect_comm(send_plugin, 0, listener.handle(), {.deadline = soon()}).value();
    Comm recv_comm = listener.accept(device_handle_, {.deadline = soon()}).value();
    ASSERT_TRUE(listener.close().is_ok());
    const BouncePool pool = recv_plugin.bounce_pool(device_handle_, memory, *lane_).value();
    const PipelineOptions options{.limits = {}, .chunk_bytes = chunk_bytes};
    send_ = Pipeline::create(std::move(send_comm), {}, Clock::steady(), options).value();
    recv_ = Pipeline::create(std::move(recv_comm), {.unpacker = unpacker_.get(), .pool = pool}, Clock::steady(), options).value();
    send_memory_ = send_->register_memory(source_.host(), bytes, MemoryType::kHost).value();
    recv_memory_ = recv_->register_memory(target_.host(), bytes, type).value();
  }

  // @return status of the send and of the receive
  std::pair<Status, Status> transfer(size_t bytes, uint64_t seed) {
    fill_pattern({source_.host(), bytes}, seed);
    const TransferId sent = send_->submit({.memory = send_memory_, .bytes = bytes}).value();
    const TransferId got = recv_->submit({.memory = recv_memory_, .bytes = bytes}).value();
    Status send_status, recv_status;
    std::thread sender([&] { send_status = run_until_done(*send_, sent, {.deadline = soon()}).status(); });
    recv_status = run_until_done(*recv_, got, {.deadline = soon()}).status();
    sender.join();
    return {send_status, recv_status};
  }

  void expect_exact(size_t bytes, uint64_t seed) {
    const auto [send_status, recv_status] = transfer(bytes, seed);
    EXPECT_TRUE(send_status.is_ok()) << send_status.to_string();
    ASSERT_TRUE(recv_status.is_ok()) << recv_status.to_string();
    const Status data = verify_pattern({target_.host(), bytes}, seed);
    EXPECT_TRUE(data.is_ok()) << data.to_string();
  }

  std::unique_ptr<LocalMachine> endpoint_;
  std::unique_ptr<FaultyNetPlugin> send_faults_, recv_faults_;
  std::unique_ptr<Unpacker> unpacker_;
  std::unique_ptr<CopyLane> lane_;
  MemoryBuffer source_, target_;
  DeviceHandleStorage device_handle_;
  std::unique_ptr<Pipeline> send_, recv_;
  RegisteredMemory send_memory_, recv_memory_;
};

TEST_F(PipelineLoopback, EverySizeAroundChunkAndPageArrivesExactly) {
  if (endpoint_->memory->has_gpu()) GTEST_SKIP() << "uses host memory as device memory, which a machine with a GPU refuses";
  connect(*endpoint_->plugin, *endpoint_->plugin, MemoryType::kCuda, 4u << 20, 65536);
  uint64_t seed = 1;
  for (const size_t bytes : {0u, 1u, 15u, 4095u, 4096u, 4097u, 65535u, 65536u, 65537u, 1000003u, 4u << 20})
    expect_exact(bytes, seed++);
  EXPECT_TRUE(send_->close().is_ok());
  EXPECT_TRUE(recv_->close().is_ok());
}

TEST_F(PipelineLoopback, HostMemoryArrivesInPlace) {
  connect(*endpoint_->plugin, *endpoint_->plugin, MemoryType::kHost, 1u << 20, 100000);
  for (const size_t bytes : {0u, 1u, 99999u, 100001u, 1u << 20}) expect_exact(bytes, bytes + 1);
}

TEST_F(PipelineLoopback, DelaysDoNotShowInTheData) {
  if (endpoint_->memory->has_gpu()) GTEST_SKIP() << "uses host memory as device memory, which a machine with a GPU refuses";
  send_faults_ = std::make_unique<FaultyNetPlugin>(*endpoint_->plugin, FaultPolicy{.seed = 3, .delay_percent = 60});
  recv_faults_ = std::make_unique<FaultyNetPlugin>(*endpoint_->plugin, FaultPolicy{.seed = 4, .delay_percent = 60});
  connect(*send_faults_, *recv_faults_, MemoryType::kCuda, 1u << 20, 4096);
  for (uint64_t seed = 1; seed <= 5; ++seed) expect_exact((1u << 20) - seed, seed);
  EXPECT_GT(send_faults_->delays(), 0u);
  EXPECT_GT(recv_faults_->delays(), 0u);
}

TEST_F(PipelineLoopback, Trap36_ABreakAtEitherEndEndsBoth) {
  // The plugin logs what it sees; the pipeline broken on purpose closes, and the other end notices.
  testing::allow_log("PEER_GONE");
  if (endpoint_->memory->has_gpu()) GTEST_SKIP() << "uses host memory as device memory, which a machine with a GPU refuses";
  for (const bool sender_breaks : {true, false}) {
    for (const uint64_t at : {1u, 2u, 20u, 60u}) {
      send_faults_ = std::make_unique<FaultyNetPlugin>(*endpoint_->plugin, FaultPolicy{.break_at = sender_breaks ? at : 0});
      recv_faults_ = std::make_unique<FaultyNetPlugin>(*endpoint_->plugin, FaultPolicy{.break_at = sender_breaks ? 0 : at});
      connect(*send_faults_, *recv_faults_, MemoryType::kCuda, 4u << 20, 4096);
      const TimePoint begin = Clock::steady().now();
      const auto [send_status, recv_status] = transfer(4u << 20, at);
      EXPECT_EQ(recv_status.code(), Code::kPeerGone) << "break at " << at;
      // A sender whose bytes all fit the sockets' buffers is done before it can notice (36).
      EXPECT_TRUE(send_status.code() == Code::kPeerGone || (send_status.is_ok() && !sender_breaks)) << send_status.to_string();
      EXPECT_LT(Clock::steady().now() - begin, seconds(10));
      send_.reset();
      recv_.reset();
    }
  }
}

}  // namespace
}  // namespace tcpx
