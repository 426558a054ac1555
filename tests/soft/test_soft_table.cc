// Bytes of every size through the raw tables of all versions, and calls that they must refuse.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "base/environment.h"
#include "tests/support/soft_conformance.h"

namespace tcpx::testing {
namespace {

using SoftTable = SoftConformanceFixture;
INSTANTIATE_TEST_SUITE_P(Plugin, SoftTable, ::testing::Values("linked", "file", "v9", "v10", "v11"), name_of_table);

TEST_P(SoftTable, BytesArriveForManySizesAndBothMemoryTypes) {
  TablePair pair(*table_);
  uint64_t seed = 1;
  for (const MemoryType type : {MemoryType::kCuda, MemoryType::kHost}) {
    for (const size_t bytes : {size_t{1}, size_t{7}, size_t{22}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{65536},
                               size_t{524288}, size_t{524289}, kMiB + 17, 4 * kMiB - 1, 4 * kMiB}) {
      roundtrip(pair, type, bytes, seed++);
    }
  }
}

int option_of(int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  return ::getsockopt(fd, level, option, &value, &length) == 0 ? value : -1;
}

TEST_P(SoftTable, AnIdleConnectionOutlastsASilentPathForThePeerTimeout) {
  const TablePair pair(*table_);
  int sockets = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state != TCP_ESTABLISHED) continue;
    ++sockets;
    EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    const int asked_for = (option_of(fd, IPPROTO_TCP, TCP_KEEPCNT) - 1) * option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL);
    EXPECT_GE(asked_for * 1000, *environment_integer(Variable::kPeerTimeoutMs));
  }
  EXPECT_GE(sockets, 4) << "a data socket and a control socket of either end";
}

TEST_P(SoftTable, ManyRequestsInFlightKeepTheirOrder) {
  constexpr size_t kBytes = 70001, kStride = 73728, kRounds = 5;
  TableLink link(*table_, kStride * kQueueDepth);
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<void*> sends, recvs;
    for (size_t i = 0; i < kQueueDepth; ++i) link.source.write(pattern_bytes(kBytes, round * 100 + i), i * kStride);
    for (size_t i = 0; i < kQueueDepth; ++i) sends.push_back(link.send(kBytes, i * kStride));
    for (size_t i = 0; i < kQueueDepth; ++i) recvs.push_back(link.recv(kBytes, i * kStride));
    for (size_t i = 0; i < kQueueDepth; ++i) EXPECT_EQ(link.take(recvs[i], i * kStride), static_cast<int>(kBytes));
    for (void* send : sends) link.finish(send);
    for (size_t i = 0; i < kQueueDepth; ++i) {
      EXPECT_TRUE(link.has_arrived(kBytes, round * 100 + i, i * kStride)) << "round " << round << " message " << i;
    }
  }
}

TEST_P(SoftTable, NullArgumentsAreRefusedEverywhere) {
  TablePair pair(*table_);
  TestMemory memory(MemoryType::kHost, 4096);
  void *mhandle = pair.register_with(pair.receiver, memory), *out = nullptr, *data = memory.data();
  int size = 1, tag = 0, done = 0;
  const int refused = abi::kNcclInternalError;
  EXPECT_EQ(table_->devices(nullptr), refused);
  EXPECT_EQ(table_->get_properties(0, nullptr), refused);
  EXPECT_EQ(table_->listen(0, nullptr, &out), refused);
  EXPECT_EQ(table_->listen(0, pair.handle.bytes.data(), nullptr), refused);
  EXPECT_EQ(table_->listen(5, pair.handle.bytes.data(), &out), refused);
  EXPECT_EQ(table_->connect(0, nullptr, &out, nullptr), refused);
  EXPECT_EQ(table_->connect(0, pair.handle.bytes.data(), nullptr, nullptr), refused);
  EXPECT_EQ(table_->accept(nullptr, &out, nullptr), refused);
  EXPECT_EQ(table_->accept(pair.listener, nullptr, nullptr), refused);
  EXPECT_EQ(table_->reg_mr(nullptr, data, 1, 1, &out), refused);
  EXPECT_EQ(table_->reg_mr(pair.sender, nullptr, 1, 1, &out), refused);
  EXPECT_EQ(table_->reg_mr(pair.sender, data, -1, 1, &out), refused);
  EXPECT_EQ(table_->reg_mr(pair.sender, data, 1, 3, &out), refused);
  EXPECT_EQ(table_->reg_mr(pair.sender, data, 1, 1, nullptr), refused);
  EXPECT_EQ(pair.deregister(pair.sender, nullptr), abi::kNcclSuccess);
  EXPECT_EQ(table_->isend(nullptr, data, 1, 0, mhandle, &out), refused);
  EXPECT_EQ(table_->isend(pair.sender, data, 1, 0, nullptr, &out), refused);
  EXPECT_EQ(table_->isend(pair.sender, data, 1, 0, mhandle, &out), refused) << "registered with the other comm";
  EXPECT_EQ(table_->isend(pair.receiver, data, 1, 0, mhandle, &out), refused) << "a receiving comm cannot send";
  EXPECT_EQ(table_->irecv(nullptr, 1, &data, &size, &tag, &mhandle, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 2, &data, &size, &tag, &mhandle, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, nullptr, &size, &tag, &mhandle, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, nullptr, &tag, &mhandle, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, &size, &tag, nullptr, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, &size, &tag, &mhandle, nullptr), refused);
  EXPECT_EQ(table_->test(nullptr, &done, nullptr), refused);
  EXPECT_EQ(table_->irecv_consumed(pair.receiver, 1, nullptr), refused);
  EXPECT_EQ(table_->close_send(nullptr), abi::kNcclSuccess);
  EXPECT_EQ(table_->close_listen(nullptr), abi::kNcclSuccess);
  EXPECT_EQ(table_->close_send(pair.listener), refused) << "a listener is not a comm";
  EXPECT_EQ(out, nullptr);
}

TEST_P(SoftTable, RequestsStayInsideTheirRegistration) {
  TableLink link(*table_, 8192);
  void *mhandle = nullptr, *target_handle = nullptr, *request = nullptr;
  ASSERT_EQ(table_->reg_mr(link.sender, link.source.data(), 4096, abi::kNcclPtrCuda, &mhandle), abi::kNcclSuccess);
  ASSERT_EQ(table_->reg_mr(link.receiver, link.target.data(), 4096, abi::kNcclPtrCuda, &target_handle), abi::kNcclSuccess);
  const std::pair<size_t, int> outside[] = {{0, 4097}, {1, 4096}, {5000, 1}, {0, -1}};
  for (const auto& [offset, bytes] : outside) {
    EXPECT_EQ(table_->isend(link.sender, link.source.data() + offset, bytes, 0, mhandle, &request), abi::kNcclInternalError)
        << offset << " " << bytes;
    void* data = link.target.data() + offset;
    int size = bytes, tag = 0;
    EXPECT_EQ(table_->irecv(link.receiver, 1, &data, &size, &tag, &target_handle, &request), abi::kNcclInternalError)
        << offset << " " << bytes;
  }
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(link.deregister(link.sender, mhandle), abi::kNcclSuccess);
  EXPECT_EQ(link.deregister(link.receiver, target_handle), abi::kNcclSuccess);
}

// The original accepts any deregistration at any time, and NCCL deregisters with requests outstanding when it aborts.
TEST_P(SoftTable, DeregisteringMemoryOfAnUnfinishedReceiveEndsTheComm) {
  TableLink link(*table_, 4096, MemoryType::kHost);
  link.source.write(pattern_bytes(4096, 1));
  void* recv = link.recv(4096);
  EXPECT_EQ(link.deregister(link.receiver, link.recv_handle), abi::kNcclSuccess);
  EXPECT_EQ(link.deregister(link.receiver, link.recv_handle), abi::kNcclInternalError) << "twice";
  link.finish(link.send(4096));
  EXPECT_EQ(link.wait_for_error(recv), abi::kNcclSystemError);
  EXPECT_TRUE(link.target.read() == std::vector<std::byte>(4096)) << "written after it was let go";
  EXPECT_EQ(link.refused_recv(4096), abi::kNcclSystemError);
}

TEST_P(SoftTable, DeregisteringMemoryOfAnUnfinishedSendEndsTheComm) {
  constexpr size_t kBytes = 64 << 20;  // more than the kernel buffers without a receiver
  TableLink link(*table_, kBytes, MemoryType::kHost);
  void* send = link.send(kBytes);
  EXPECT_EQ(link.deregister(link.sender, link.send_handle), abi::kNcclSuccess);
  EXPECT_EQ(link.wait_for_error(send), abi::kNcclSystemError);
}

TEST_P(SoftTable, MemoryOfAFinishedReceiveMayBeDeregistered) {
  TableLink link(*table_, 4096);
  void* recv = link.recv(4096);
  link.finish(link.send(4096));
  link.finish(recv);
  EXPECT_EQ(link.deregister(link.receiver, link.recv_handle), abi::kNcclSuccess) << "not consumed yet, and nobody needs it";
  link.consume(recv);
  roundtrip(link, MemoryType::kCuda, 4096, 2);
}

TEST_P(SoftTable, ConsumingTooEarlyTwiceOrOutOfOrderIsRefused) {
  TableLink link(*table_, 4096);
  const auto consumed = [&](void* request, int n = 1) { return table_->irecv_consumed(link.receiver, n, request); };
  void *first = link.recv(100), *second = link.recv(100);
  EXPECT_EQ(consumed(first), abi::kNcclInternalError) << "not done";
  void* send = link.send(100);
  link.send(100);
  EXPECT_EQ(consumed(send), abi::kNcclSuccess) << "of a send: ignored";
  link.finish(first);
  link.finish(second);
  EXPECT_EQ(consumed(second), abi::kNcclInternalError) << "out of order";
  EXPECT_EQ(consumed(first, 2), abi::kNcclInternalError) << "n";
  link.consume(first);
  EXPECT_EQ(consumed(first), abi::kNcclInternalError) << "twice";
  link.consume(second);
}

TEST_P(SoftTable, ClosingWithRequestsOutstandingIsClean) {
  TableLink link(*table_, 4 * kMiB);
  for (int i = 0; i < 8; ++i) {
    link.send(4 * kMiB);
    link.recv(4 * kMiB);
  }
  link.close_receiver();
  link.close_sender();
  TablePair next(*table_);
  roundtrip(next, MemoryType::kCuda, 4 * kMiB, 4);  // the pool got its pages back
}

TEST_P(SoftTable, TwoCommsFromTwoThreads) {
  TablePair one(*table_), two(*table_);
  const auto drive = [&](TablePair& pair, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 60; ++i) {
      roundtrip(pair, i % 2 == 0 ? MemoryType::kCuda : MemoryType::kHost, random() % 700000, random());
    }
  };
  std::thread other([&] { drive(two, 2); });
  drive(one, 1);
  other.join();
}

}  // namespace
}  // namespace tcpx::testing
