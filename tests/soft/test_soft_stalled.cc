// A peer of the software plugin that is stopped for a while.
#include <signal.h>

#include <chrono>
#include <csignal>
#include <future>
#include <thread>

#include "tests/support/child_process.h"
#include "tests/support/hex_text.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/message_stream.h"
#include "tests/support/process_state.h"
#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

using SoftStalled = SoftFaults;

/// The handle that a receiving stream_peer says first.
Handle read_handle(ChildProcess& peer) {
  const std::string line = peer.read_line(soon());
  EXPECT_TRUE(line.starts_with("handle ")) << line;
  return handle_from_hex(line.substr(7)).value();
}

// Consumers call it once and treat a missing comm as a failure.
TEST_F(SoftStalled, ConnectFinishesInOneCallHoweverLateTheAnswer) {
  ChildProcess child({TCPX_STREAM_PEER, "recv", "0", "never", "0"});
  Handle handle = read_handle(child);
  child.stop();
  auto later = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    child.send_signal(SIGCONT);
  });
  void* sender = nullptr;
  EXPECT_EQ(table_.connect(0, handle.bytes.data(), &sender, nullptr), abi::kNcclSuccess);
  EXPECT_NE(sender, nullptr);
  later.get();
  EXPECT_EQ(table_.close_send(sender), abi::kNcclSuccess);
}

// A caller that asks for it gets "not yet". Its sockets are closed when the caller gives up, else when the attempt times out.
TEST_F(SoftStalled, B6_ConnectInStepsDoesNotWaitForAListenerThatDoesNotAnswer) {
  const UniqueFd silent = listen_tcp(SocketAddress::loopback(0), 8).value();
  soft::HandleInfo info{.addresses = {local_address(silent.get()).value()}, .data_sockets = 2, .chunk_bytes = 1 << 20};
  const size_t before = descriptor_count();
  Handle handle = soft::encode_handle(info);
  soft::answer_in_steps(handle);
  void* comm = &comm;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(table_.connect(0, handle.bytes.data(), &comm, nullptr), abi::kNcclSuccess);
    EXPECT_EQ(comm, nullptr);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    EXPECT_EQ(descriptor_count(), before + 3) << "still the same attempt";
  }
  Handle taken = handle;
  EXPECT_EQ(table_.connect(0, handle.bytes.data(), nullptr, nullptr), abi::kNcclSuccess);
  EXPECT_EQ(descriptor_count(), before);
  allow_log("this attempt has ended");
  EXPECT_EQ(table_.connect(0, taken.bytes.data(), &comm, nullptr), abi::kNcclSystemError);
}

// A stall longer than each time after which the plugin gives something up, 5 s for a hello being the longest of a single socket: 7 seconds
// (5 under a checker), in both directions at the same time.
class LongStall : public ::testing::Test {
 protected:
  static constexpr uint64_t kMessages = 6000;
  static constexpr std::chrono::milliseconds kStopped{kIsChecked ? 5000 : 7000};

  void SetUp() override { allow_log("tcpx-soft"); }

  HiddenMemoryOps hidden_;
  MemoryOps& memory_ = machine_memory().has_gpu() ? machine_memory() : hidden_;
  std::shared_ptr<soft::IoPool> io_ = *soft::IoPool::create(2);
  std::shared_ptr<soft::PagePool> pool_ = *soft::PagePool::create(memory_, 0, 4 << 20);
  std::shared_ptr<soft::StagingPool> staging_ = std::make_shared<soft::StagingPool>(memory_, 0);
};

TEST_F(LongStall, LosesNothingAndCostsNothing) {
  const std::string total = std::to_string(kMessages);
  ChildProcess receiving_peer({TCPX_STREAM_PEER, "recv", total, "never", "0"});
  auto to_peer = connect_softly(read_handle(receiving_peer));
  const auto listener = listen_softly(io_, kStreamChunkBytes);
  ChildProcess sending_peer({TCPX_STREAM_PEER, "send", total, "never", "0", to_hex(listener->handle())});
  auto from_peer = accept_softly(*listener);

  const auto sender = must(soft::SoftSendComm::create(memory_, 0, io_, staging_, std::move(to_peer)));
  const auto receiver = must(soft::SoftRecvComm::create(memory_, 0, io_, pool_, std::move(from_peer)));
  auto sends = SendStream::create(memory_, *sender, MemoryType::kCuda, {.window = kQueueDepth, .total = kMessages});
  auto receives = RecvStream::create(memory_, *receiver, *pool_, MemoryType::kCuda, {.window = kQueueDepth, .total = kMessages});
  ASSERT_TRUE(sends.is_ok() && receives.is_ok());

  const auto step = [&] {
    for (const auto& moved : {sends->step(), receives->step()}) EXPECT_TRUE(moved.is_ok()) << moved.status().to_string();
    return HasFailure();
  };
  const auto finished = [&] { return sends->finished() + receives->finished(); };
  ASSERT_TRUE(wait_until([&] { return step() || finished() > kMessages / 5; }));
  receiving_peer.send_signal(SIGSTOP);
  sending_peer.send_signal(SIGSTOP);
  const Deadline resumed = Deadline::after(kStopped);
  // Until the kernel's buffers are full, or empty.
  for (uint64_t before = ~uint64_t{0}; before != finished() && !HasFailure();) {
    before = finished();
    wait_until([&] { return step(); }, std::chrono::milliseconds(300));
  }
  EXPECT_LT(sends->finished(), kMessages);
  EXPECT_LT(receives->finished(), kMessages);
  const uint64_t stalled_at = finished();
  EXPECT_LT(idle_seconds(resumed.poll_ms()), 0.01 * std::chrono::duration<double>(kStopped).count()) << "of all threads, while everybody waits";
  EXPECT_FALSE(step()) << "no error";
  EXPECT_EQ(finished(), stalled_at);

  receiving_peer.send_signal(SIGCONT);
  sending_peer.send_signal(SIGCONT);
  EXPECT_TRUE(wait_until([&] { return step() || finished() == 2 * kMessages; }, std::chrono::seconds(60))) << finished();
  for (ChildProcess* peer : {&receiving_peer, &sending_peer}) EXPECT_TRUE(peer->wait_for_line("all", soon())) << "what it got";
}

}  // namespace
}  // namespace tcpx::testing
