// For connections of the software plugin whose chunk headers are on the control socket.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <utility>

#include "net/soft/recv_comm.h"
#include "net/soft/send_comm.h"
#include "tests/support/expect_log.h"
#include "tests/support/soft_wire.h"

namespace tcpx::testing {

inline constexpr uint32_t kLongestApart = 2 * kPageBytes;  // of a chunk

inline void set_buffers(const UniqueFd& from, const UniqueFd& to, int bytes) {
  EXPECT_EQ(::setsockopt(from.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
  EXPECT_EQ(::setsockopt(to.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
}

class SoftApart : public ::testing::Test {
 protected:
  explicit SoftApart(std::unique_ptr<MemoryOps> memory = make_host_memory_ops()) : memory_(std::move(memory)) {}
  void SetUp() override { allow_log("tcpx-soft"); }
  /// A connection, of which the test may drive an end.
  std::unique_ptr<Wire> wire(uint32_t chunk_bytes = kLongestApart, int data_buffer = 0, size_t sockets = 2) {
    auto made = std::make_unique<Wire>(chunk_bytes, data_buffer, sockets);
    made->ours.headers_apart = made->theirs.headers_apart = true;
    return made;
  }
  std::unique_ptr<soft::SoftRecvComm> receiver(soft::ConnectedSockets sockets) {
    return must(soft::SoftRecvComm::create(*memory_, 0, io_, pool_, std::move(sockets)));
  }
  std::unique_ptr<soft::SoftSendComm> sender(MemoryOps& memory, soft::ConnectedSockets sockets) {
    return must(soft::SoftSendComm::create(memory, 0, io_, std::make_shared<soft::StagingPool>(memory, 0), std::move(sockets)));
  }

  const std::unique_ptr<MemoryOps> memory_;
  const std::shared_ptr<soft::IoPool> io_ = *soft::IoPool::create(2);
  const std::shared_ptr<soft::PagePool> pool_ = *soft::PagePool::create(*memory_, 0, 4 << 20);
};

}  // namespace tcpx::testing
