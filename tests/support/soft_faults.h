// The software plugin's table under attack: a fixture that serves good clients, and a receiving comm whose sender is raw sockets
// driven by the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>

#include "tests/support/expect_log.h"
#include "tests/support/soft_wire.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {

/// The table, and a good client to check that it still works.
class SoftFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(table_.init(nullptr), abi::kNcclSuccess);
    allow_log("tcpx-soft");
  }

  void* listen(Handle& handle) {
    void* listener = nullptr;
    EXPECT_EQ(table_.listen(0, handle.bytes.data(), &listener), abi::kNcclSuccess);
    return listener;
  }

  /// A good client connects, is accepted, and a message arrives.
  void expect_good_client_served(void* listener, const Handle& handle) {
    TableLink client(table_, 4096, MemoryType::kHost, listener, handle);
    client.source.write(pattern_bytes(4096, 1));
    void* recv = client.recv(4096);
    client.send(4096);
    EXPECT_EQ(client.finish(recv), 4096);
    EXPECT_TRUE(client.has_arrived(4096, 1));
  }

  const abi::NetTable_v7& table_ = *linked_table();
};

/// A receiving comm whose sender is raw sockets driven by the test.
class RawSender {
 public:
  /// Its cut of messages: a sender may choose, and the plugin allows twice as much by default.
  static constexpr uint32_t kCut = 256 * 1024;

  /// @param type of the memory that the comm receives into.
  explicit RawSender(const abi::NetTable_v7& table_under_test, MemoryType type = MemoryType::kCuda)
      : table(table_under_test), target(type, 4 << 20) {
    Handle handle;
    EXPECT_EQ(table.listen(0, handle.bytes.data(), &listener), 0);
    sockets = connect_softly(handle);
    receiver = accept_one(table, listener, nullptr);
    EXPECT_EQ(table.reg_mr(receiver, target.data(), static_cast<int>(target.size()), static_cast<int>(type), &mhandle), 0);
  }
  ~RawSender() {
    EXPECT_EQ(table.close_recv(receiver), 0);
    EXPECT_EQ(table.close_listen(listener), 0);
  }
  void* post(int size, size_t offset = 0) {
    void *data = target.data() + offset, *request = nullptr;
    int tag = 0;
    EXPECT_EQ(table.irecv(receiver, 1, &data, &size, &tag, &mhandle, &request), 0);
    return request;
  }
  void send(size_t socket, std::span<const std::byte> bytes) { send_bytes(sockets.data[socket], bytes); }
  void send_chunk(size_t socket, const soft::ChunkHeader& header) {
    testing::send_chunk(sockets.data[socket], header, pattern_bytes(header.bytes, 1));
  }
  int finish(void* request) {
    int done = 0, rc = 0;
    EXPECT_TRUE(wait_until([&] { return (rc = table.test(request, &done, nullptr)) != 0 || done != 0; }, kTestDeadline))
        << "neither done nor an error";
    return rc;
  }

  const abi::NetTable_v7& table;
  TestMemory target;
  soft::ConnectedSockets sockets;
  void *listener = nullptr, *receiver = nullptr, *mhandle = nullptr;
};

}  // namespace tcpx::testing
