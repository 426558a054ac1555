// A thousand connections in one process: their cost while idle, and that all of them work.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "net/soft/connector.h"
#include "net/soft/listener.h"
#include "net/soft/recv_comm.h"
#include "net/soft/wire.h"
#include "tests/support/counting_memory_ops.h"
#include "tests/support/expect_log.h"
#include "tests/support/process_state.h"
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
  struct Pair {
    void *sender = nullptr, *receiver = nullptr, *send_handle = nullptr, *recv_handle = nullptr, *send = nullptr, *recv = nullptr;
    abi::NetDeviceHandle device_handle{};
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
    for (Pair& pair : pairs_) close(pair);
    EXPECT_EQ(table_.close_listen(listener_), 0);  // NULL is fine
    ::setrlimit(RLIMIT_NOFILE, &limit_);
  }

  void open(size_t count) {
    for (pairs_.reserve(count); pairs_.size() < count;) {
      Pair& pair = pairs_.emplace_back();
      Handle copy = handle_;
      ASSERT_EQ(table_.connect(0, copy.bytes.data(), &pair.sender, nullptr), 0) << "connection " << pairs_.size();
      abi::NetDeviceHandle* out = &pair.device_handle;
      pair.receiver = accept_one(table_, listener_, &out);
      ASSERT_EQ(table_.reg_mr(pair.sender, source_.data(), static_cast<int>(source_.size()), 2, &pair.send_handle), 0);
      ASSERT_EQ(table_.reg_mr(pair.receiver, target_.data(), static_cast<int>(target_.size()), 2, &pair.recv_handle), 0);
    }
  }
  void close(Pair& pair) {
    EXPECT_EQ(table_.close_send(pair.sender), 0);
    EXPECT_EQ(table_.close_recv(pair.receiver), 0);
  }
  void* post_recv(Pair& pair, int bytes) {
    void *data = target_.data(), *request = nullptr;
    int tag = 0;
    EXPECT_EQ(table_.irecv(pair.receiver, 1, &data, &bytes, &tag, &pair.recv_handle, &request), 0);
    return request;
  }
  void* post_send(Pair& pair, int bytes) {
    void* request = nullptr;
    EXPECT_EQ(table_.isend(pair.sender, source_.data(), bytes, 0, pair.send_handle, &request), 0);
    return request;
  }
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
    EXPECT_EQ(table_.irecv_consumed(pair.receiver, 1, request), 0);
  }
  void exchange_on(std::span<Pair> pairs, int bytes) {
    for (Pair& pair : pairs) {
      pair.recv = post_recv(pair, bytes);
      pair.send = post_send(pair, bytes);
      pair.bytes = bytes;
      pair.received = pair.sent = false;
    }
    size_t open = 0;
    EXPECT_TRUE(wait_until([&] {
      open = 0;
      for (Pair& pair : pairs) {
        progress(pair);
        if (!pair.received || !pair.sent) ++open;
      }
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
  std::vector<Pair> pairs_;
};

TEST_F(SoftMany, AThousandConnectionsIdleForNothingAndAllWork) {
  open(1);
  exchange_on(pairs_, kSmallMessage);  // resources created on first use exist now
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

  // Idleness is measured over time: this thread waits for an event that does not come.
  const UniqueFd never(::eventfd(0, EFD_CLOEXEC));
  pollfd nothing{never.get(), POLLIN, 0};
  constexpr int kMilliseconds = 1500;
  EXPECT_EQ(::poll(&nothing, 1, 100), 0);  // longer than a thread may spin after its last work
  const double before = processor_seconds();
  EXPECT_EQ(::poll(&nothing, 1, kMilliseconds), 0);
  const double used = processor_seconds() - before;
  EXPECT_LT(used, 0.01 * kMilliseconds / 1000) << "of a core, which 256 comms may use, not all of these";

  for (int round = 0; round < 2; ++round) exchange_on(pairs_, kSmallMessage);
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
  const std::span<Pair> others = std::span(pairs_).subspan(1);
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
  for (int round = 0; round < 20; ++round) exchange_on(others, kLargeMessage);
  EXPECT_EQ(hoard(), kHalfOfThePool) << "and it still gets no more";
  for (size_t consumed = 0; consumed < kQueueDepth; ++consumed) {
    while (hoarded == consumed)
      ASSERT_TRUE(wait_until([&] { return hoard() > consumed; })) << "message " << consumed << " is lost";
    consume(hog, recvs[consumed], kLargeMessage);
  }
  for (void* send : sends) {
    int done = 0;
    EXPECT_TRUE(wait_until([&] { return table_.test(send, &done, nullptr) != 0 || done != 0; }));
    EXPECT_EQ(done, 1);
  }
  exchange_on(pairs_, kLargeMessage);
}

TEST(SoftManyMemory, AReceivingCommPinsItsMetadataAndNothingElse) {
  allow_log("dropped during the handshake");
  const auto io = *soft::IoPool::create(1);
  const auto host_memory = make_host_memory_ops();
  CountingMemoryOps memory(*host_memory);
  const auto pool = *soft::PagePool::create(memory, 0, 1 << 20);
  const soft::HandleInfo info = {.address = {}, .data_sockets = 4, .chunk_bytes = 4096, .cookie = {}, .control_address = {}};
  const auto listener = soft::SoftListener::create(SocketAddress::loopback(0), info, io);
  ASSERT_TRUE(listener.is_ok());
  const auto connected = soft::connect_to_listener(*soft::decode_handle((*listener)->handle()), SocketAddress::loopback(0),
                                                   Deadline::after(std::chrono::seconds(10)));
  ASSERT_TRUE(connected.is_ok());
  std::optional<soft::ConnectedSockets> sockets;
  ASSERT_TRUE(wait_until([&] { return (sockets = (*listener)->try_accept()).has_value(); }));
  const size_t before = memory.all_bytes();
  const auto comm = soft::SoftRecvComm::create(memory, 0, io, pool, std::move(*sockets));
  ASSERT_TRUE(comm.is_ok());
  EXPECT_LE(memory.all_bytes() - before, sizeof(abi::NetUnpackMeta) + sizeof(abi::UnpackNetDeviceHandle));
}

}  // namespace
}  // namespace tcpx::testing
