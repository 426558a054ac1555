// A thousand connections in one process: their cost while idle, and that all of them work.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>

#include "net/soft/recv_comm.h"
#include "tests/support/counting_memory_ops.h"
#include "tests/support/expect_log.h"
#include "tests/support/process_state.h"
#include "tests/support/soft_wire.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

constexpr size_t kPairs = 1024;
constexpr size_t kMostPerComm = 500 * 1024, kMostPerSocket = 50 * 1024;
constexpr size_t kBooksOfTheDriver = 64 * 1024;  // of memory that a GPU can read
constexpr int kSmallMessage = 16384, kLargeMessage = 131072;

// Far less than all comms together want, so that they take turns. Set before the plugin reads its settings.
constexpr size_t kPoolBytes = 1 << 20;
// As on a small machine: descriptors limit the number of connections.
const bool four_sockets = ::setenv("NCCL_NSOCKS_PERTHREAD", "4", 1) == 0;
const bool small_pool = ::setenv("UCCL_TCPX_SOFT_POOL_BYTES", std::to_string(kPoolBytes).c_str(), 1) == 0;

class SoftMany : public ::testing::Test {
 protected:
  struct Pair : TablePair {
    using TablePair::TablePair;
    void *send_handle = nullptr, *recv_handle = nullptr, *send = nullptr, *recv = nullptr;
    int bytes = 0;
    bool received = false, sent = false;
  };

  void SetUp() override {
    allow_log("dropped during the handshake");  // a port may just have been another test's
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit_), 0);
    constexpr rlim_t kWanted = kPairs * 2 * 5 + 200;  // four data sockets and the control socket, both ends
    if (limit_.rlim_max < kWanted) GTEST_SKIP() << kWanted << " descriptors wanted, the hard limit is " << limit_.rlim_max;
    rlimit raised = limit_;
    raised.rlim_cur = std::max(limit_.rlim_cur, kWanted);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &raised), 0);
    source_.write(content_);
    ASSERT_EQ(table_.init(nullptr), 0);
    ASSERT_EQ(table_.listen(0, handle_.bytes.data(), &listener_), 0);
  }
  void TearDown() override {
    pairs_.clear();
    EXPECT_EQ(table_.close_listen(listener_), 0);  // NULL is fine
    ::setrlimit(RLIMIT_NOFILE, &limit_);
  }

  void open(size_t count) {
    while (pairs_.size() < count && !HasFailure()) {
      Pair& pair = pairs_.emplace_back(table_, listener_, handle_);
      pair.send_handle = pair.register_with(pair.sender, source_);
      pair.recv_handle = pair.register_with(pair.receiver, target_);
    }
  }
  void* post_recv(Pair& pair, size_t bytes) { return pair.post_recv(target_, pair.recv_handle, bytes); }
  void* post_send(Pair& pair, size_t bytes) { return pair.post_send(source_, pair.send_handle, bytes); }
  /// Tests the outstanding requests of `pair` once; an arrived message is compared and consumed.
  void progress(Pair& pair) {
    int done = 0, size = 0;
    if (!pair.sent) {
      ASSERT_EQ(table_.test(pair.send, &done, nullptr), 0);
      pair.sent = done != 0;
    }
    if (pair.received) return;
    ASSERT_EQ(table_.test(pair.recv, &done, &size), 0);
    if (done == 0) return;
    pair.received = true;
    EXPECT_EQ(size, pair.bytes);
    consume(pair, pair.recv, size);
  }
  void consume(Pair& pair, void* request, int bytes) {
    target_.write(std::vector<std::byte>(kLargeMessage));
    gather(*static_cast<abi::TcpxRequest*>(request), pair.device_handle, target_.data());
    const auto arrived = target_.read();
    EXPECT_TRUE(std::equal(arrived.begin(), arrived.begin() + bytes, content_.begin()));
    pair.consume(request);
  }
  /// A message on each pair but the first `left_out`.
  void exchange(int bytes, ptrdiff_t left_out = 0) {
    const auto first = pairs_.begin() + left_out;
    std::for_each(first, pairs_.end(), [&](Pair& pair) {
      pair.recv = post_recv(pair, static_cast<size_t>(bytes));
      pair.send = post_send(pair, static_cast<size_t>(bytes));
      pair.bytes = bytes;
      pair.received = pair.sent = false;
    });
    size_t open = 0;
    EXPECT_TRUE(wait_until([&] {
      open = 0;
      std::for_each(first, pairs_.end(), [&](Pair& pair) {
        progress(pair);
        if (!pair.received || !pair.sent) ++open;
      });
      return open == 0 || HasFatalFailure();
    })) << open
        << " starve";
  }

  const abi::NetTable_v7& table_ = *linked_table();
  const std::vector<std::byte> content_ = pattern_bytes(kLargeMessage, 11);
  TestMemory source_{MemoryType::kCuda, kLargeMessage}, target_{MemoryType::kCuda, kLargeMessage};
  rlimit limit_{};
  Handle handle_;
  void* listener_ = nullptr;
  std::deque<Pair> pairs_;
};

TEST_F(SoftMany, AThousandConnectionsIdleForNothingAndAllWork) {
  open(1);
  exchange(kSmallMessage);  // resources created on first use exist now
  const size_t threads = thread_count(), resident = resident_bytes();
  // Memory of a sender and a receiver together, which is more than of either. With host memory standing in, only the used part
  // of the metadata is resident: all of it is added.
  const size_t metadata = machine_memory().has_gpu() ? 0 : sizeof(abi::NetUnpackMeta);
  const auto per_pair = [&] { return (resident_bytes() - resident) / (kPairs - 1) + metadata; };
  const size_t most = kMostPerComm + kMostPerSocket * soft::decode_handle(handle_)->data_sockets +
                      (machine_memory().has_gpu() ? kBooksOfTheDriver : 0);
  open(kPairs);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(thread_count(), threads);
  if (!kIsChecked) {
    EXPECT_LE(per_pair(), most);
  }

  idle_seconds(100);  // longer than a thread may spin after its last work
  constexpr int kMilliseconds = 1500;
  const double used = idle_seconds(kMilliseconds);
  EXPECT_LT(used, 0.01 * kMilliseconds / 1000) << "of a core, which 256 comms may use, not all of these";

  for (int round = 0; round < 2; ++round) exchange(kSmallMessage);
  EXPECT_EQ(thread_count(), threads);
  if (!kIsChecked) {
    EXPECT_LE(per_pair(), most);
  }
  std::printf("%zu connections: %zu KiB resident per sender and receiver, all metadata counted; %.2f %% of a core while idle\n",
              kPairs, per_pair() >> 10, 100 * used / (0.001 * kMilliseconds));
}

TEST_F(SoftMany, OneThatNeverConsumesStarvesNobody) {
  open(32);
  Pair& hog = pairs_.front();
  std::vector<void*> sends, recvs;
  for (size_t i = 0; i < kQueueDepth; ++i) {  // twice the pool
    recvs.push_back(post_recv(hog, kLargeMessage));
    sends.push_back(post_send(hog, kLargeMessage));
  }
  constexpr size_t kHalfOfThePool = kPoolBytes / kLargeMessage / 2;
  size_t hoarded = 0;
  const auto hoard = [&] {
    int done = 0;
    EXPECT_EQ(table_.test(recvs[hoarded], &done, nullptr), 0) << "waiting for pages is no error";
    hoarded += done != 0 ? 1 : 0;
    return hoarded;
  };
  ASSERT_TRUE(wait_until([&] { return hoard() == kHalfOfThePool; })) << hoarded;
  // 31 comms that want eight times what is left.
  for (int round = 0; round < 20; ++round) exchange(kLargeMessage, 1);
  EXPECT_EQ(hoard(), kHalfOfThePool) << "and it still gets no more";
  for (size_t consumed = 0; consumed < kQueueDepth; ++consumed) {
    while (hoarded == consumed)
      ASSERT_TRUE(wait_until([&] { return hoard() > consumed; })) << "message " << consumed << " is lost";
    consume(hog, recvs[consumed], kLargeMessage);
  }
  for (void* send : sends) hog.finish(send);
  exchange(kLargeMessage);
}

TEST(SoftManyMemory, AReceivingCommPinsItsMetadataAndNothingElse) {
  allow_log("dropped during the handshake");
  const auto io = *soft::IoPool::create(1);
  const auto host_memory = make_host_memory_ops();
  CountingMemoryOps memory(*host_memory);
  const auto pool = *soft::PagePool::create(memory, 0, 1 << 20);
  const auto listener = listen_softly(io, 4096);
  const auto connected = connect_softly(listener->handle());
  auto sockets = accept_softly(*listener);
  const size_t before = memory.all_bytes();
  const auto comm = must(soft::SoftRecvComm::create(memory, 0, io, pool, std::move(sockets)));
  EXPECT_LE(memory.all_bytes() - before, sizeof(abi::NetUnpackMeta) + sizeof(abi::UnpackNetDeviceHandle));
}

}  // namespace
}  // namespace tcpx::testing
