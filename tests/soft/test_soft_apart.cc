// Connections of the software plugin whose chunk headers are on the control socket, so that data sockets carry payload alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "measure/pattern.h"
#include "tests/support/apart_fixture.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/message_stream.h"
#include "tests/support/secret_file.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

using namespace soft;

constexpr int kSmallBuffer = 64 * 1024;

// Over kernel buffers of any size: full ones end the headers, or the payload, anywhere.
TEST_F(SoftApart, MessagesOfAllLengthsArriveBetweenMemoryOfBothKinds) {
  HiddenMemoryOps hidden;
  constexpr uint64_t kMessages = kIsChecked ? 400 : 1500;
  for (const auto& [from, into] :
       {std::pair(MemoryType::kHost, MemoryType::kHost), std::pair(MemoryType::kCuda, MemoryType::kCuda),
        std::pair(MemoryType::kHost, MemoryType::kCuda)}) {
    for (const int buffer : {0, kSmallBuffer}) {
      SCOPED_TRACE(concat(static_cast<int>(from), static_cast<int>(into), " ", buffer));
      const auto sockets = wire(kStreamChunkBytes, buffer, 3);
      if (buffer > 0) set_buffers(sockets->ours.control, sockets->theirs.control, 4096);
      sockets->ours.spare_copies = sockets->theirs.spare_copies = buffer == 0;  // as towards a NIC
      const auto sends = sender(hidden, std::move(sockets->ours));
      const auto receives = receiver(std::move(sockets->theirs));
      const StreamLimits limits{.window = kQueueDepth, .total = kMessages};
      auto out = must(SendStream::create(hidden, *sends, from, limits));
      auto in = must(RecvStream::create(*memory_, *receives, *pool_, into, limits));
      const Deadline deadline = Deadline::after(kTestDeadline);
      while (in.finished() < kMessages && !deadline.expired()) {
        const auto sent = out.step();
        ASSERT_OK(sent);
        const auto received = in.step();
        ASSERT_OK(received);
        if (!*sent && !*received) ::sched_yield();
      }
      EXPECT_EQ(in.finished(), kMessages);
    }
  }
}

/// A sending comm whose other end is driven by the test.
class ApartSender : public SoftApart {
 protected:
  void start(int control_buffer = 0, int data_buffer = 0) {
    wire_ = wire(kLongestApart, data_buffer);
    if (control_buffer > 0) set_buffers(wire_->ours.control, wire_->theirs.control, control_buffer);
    comm_ = sender(*memory_, std::move(wire_->ours));
    fill_pattern(source_, 1);
    region_ = must(comm_->register_region(source_.data(), source_.size(), MemoryType::kHost));
  }
  abi::TcpxRequest* post(size_t at, size_t bytes) {
    return must(comm_->isend(source_.data() + at, static_cast<int>(bytes), 0, region_));
  }
  ChunkHeader read_header() {
    std::array<std::byte, kChunkHeaderBytes> bytes;
    EXPECT_OK(recv_all(wire_->theirs.control.get(), bytes, soon()));
    return must(decode_chunk_header(bytes, kLongestApart));
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(1 << 20);
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<SoftSendComm> comm_;
  SoftRegion* region_ = nullptr;
};

TEST_F(ApartSender, DataSocketsCarryPayloadAndNothingElse) {
  start();
  const size_t sizes[] = {0, 1, 100, kPageBytes, kLongestApart, kLongestApart + 1, 100'000, 0, 7};
  std::vector<abi::TcpxRequest*> requests;
  for (size_t i = 0; i < std::size(sizes); ++i) requests.push_back(post(i * 1000, sizes[i]));
  for (size_t i = 0; i < std::size(sizes); ++i) {
    for (uint32_t seen = 0, chunks = 1; chunks > 0; --chunks) {
      const ChunkHeader header = read_header();
      ASSERT_EQ(header.sequence, i) << "headers are in the order of messages";
      ASSERT_EQ(header.total, sizes[i]);
      if (seen == 0) chunks = count_chunks(header.total, header.cut);
      ASSERT_EQ(header.offset, seen);
      ASSERT_LT(header.socket, 2);
      std::vector<std::byte> payload(header.bytes);
      ASSERT_OK(recv_all(wire_->theirs.data[header.socket].get(), payload, soon()));
      ASSERT_TRUE(std::equal(payload.begin(), payload.end(), source_.begin() + i * 1000 + header.offset)) << i;
      seen += header.bytes;
    }
  }
  for (const abi::TcpxRequest* request : requests) EXPECT_TRUE(is_done(*comm_, request));
  comm_.reset();
  for (const UniqueFd& fd : wire_->theirs.data) EXPECT_TRUE(is_dropped(fd)) << "not one byte more";
  EXPECT_TRUE(is_dropped(wire_->theirs.control));
}

// What is done must arrive though the sender then goes. Empty messages have nothing else to be sent.
TEST_F(ApartSender, AMessageIsNotDoneBeforeTheKernelHasItsHeaders) {
  start(4096);
  uint64_t posted = 0, done = 0;
  std::vector<abi::TcpxRequest*> requests;
  const auto test_some = [&] {
    while (done < posted && comm_->test(requests[done])->done) ++done;
    return done == posted;
  };
  // A partial header in the kernel's buffer is likely, as buffers are no multiple of a header.
  for (; posted < 100'000 && (posted - done < kRequests || wait_until([&] { return test_some() || posted - done < kRequests; },
                                                                      std::chrono::milliseconds(200)));
       ++posted) {
    requests.push_back(post(0, 0));
    test_some();
  }
  ASSERT_LT(done, posted) << "the kernel has room without end?";
  wait_until_quiet(wire_->theirs.control);
  test_some();
  const uint64_t were_done = done;
  for (uint64_t sequence = 0; sequence < posted; ++sequence) ASSERT_EQ(read_header().sequence, sequence);
  EXPECT_TRUE(wait_until(test_some));
  EXPECT_LT(were_done, posted);
}

TEST_F(ApartSender, WhatWasDoneArrivesAfterTheSenderHasGone) {
  start(4096);
  std::vector<abi::TcpxRequest*> requests;
  for (uint32_t i = 0; i < kRequests; ++i) requests.push_back(post(0, i % 2));
  uint64_t done = 0;
  while (done < kRequests && wait_until([&] { return comm_->test(requests[done])->done; }, std::chrono::milliseconds(100)))
    ++done;
  comm_.reset();
  for (uint64_t sequence = 0; sequence < done; ++sequence) {
    const ChunkHeader header = read_header();
    ASSERT_EQ(header.sequence, sequence);
    std::vector<std::byte> payload(header.bytes);
    ASSERT_OK(recv_all(wire_->theirs.data[header.socket].get(), payload, soon()));
  }
}

TEST_F(ApartSender, ASocketThatIsFullHoldsNoOtherMessageUp) {
  start(0, kSmallBuffer);
  post(0, 900'000);
  for (int i = 0; i < 20; ++i) post(0, 1);
  // All of what is on one socket is left there; the other takes the rest.
  std::vector<std::byte> payload(kLongestApart);
  uint64_t on_other = 0;
  for (uint64_t messages = 0; messages < 21;) {
    const ChunkHeader header = read_header();
    messages = header.sequence + 1;
    if (header.socket == 0) continue;
    on_other += header.bytes;
    ASSERT_OK(recv_all(wire_->theirs.data[1].get(), std::span(payload).first(header.bytes), soon()));
  }
  EXPECT_GT(on_other, 500'000u);
}

TEST_F(ApartSender, BytesOnTheControlSocketEndIt) {
  start(0, kSmallBuffer);
  abi::TcpxRequest* request = post(0, 900'000);
  send_bytes(wire_->theirs.control, std::vector<std::byte>(1));
  EXPECT_NE(error_of(*comm_, request).detail().find("bytes where none belong"), std::string::npos);
}

TEST_F(ApartSender, IsToldOfAnEndWhileItsHeadersHaveNoRoom) {
  start(4096);
  abi::TcpxRequest* oldest = nullptr;
  for (int i = 0; oldest == nullptr && i < 100'000; ++i) {
    abi::TcpxRequest* request = post(0, 0);
    if (!wait_until([&] { return comm_->test(request)->done; }, std::chrono::milliseconds(100))) oldest = request;
  }
  ASSERT_NE(oldest, nullptr);
  wire_->theirs.control.reset();
  EXPECT_EQ(error_of(*comm_, oldest).code(), Code::kPeerGone);
}

class ApartHandshake : public SoftApart {
 protected:
  void listen(bool apart) {
    const HandleInfo info = {
        .addresses = {SocketAddress::loopback(0)}, .data_sockets = 2, .chunk_bytes = kLongestApart, .headers_apart = apart};
    listener_ = must(SoftListener::create(info, io_));
    info_ = must(decode_handle(listener_->handle()));
  }
  static Result<ConnectedSockets> connect(const HandleInfo& info) {
    return connect_to_listener(info, {SocketAddress::loopback(0)}, soon());
  }
  std::unique_ptr<SoftListener> listener_;
  HandleInfo info_;
};

TEST_F(ApartHandshake, TheListenerDecides) {
  for (const bool apart : {false, true}) {
    listen(apart);
    EXPECT_EQ(must(connect(info_)).headers_apart, apart);
    EXPECT_EQ(accept_softly(*listener_).headers_apart, apart);
  }
}

TEST_F(ApartHandshake, AnotherSettingThanTheListenersIsRefused) {
  for (const bool apart : {false, true}) {
    listen(apart);
    HandleInfo changed = info_;
    changed.headers_apart = !apart;
    EXPECT_EQ(connect(changed).status().code(), Code::kPeerGone);
    EXPECT_TRUE(wait_until([] { return logged("headers on another socket than the handle says"); }));
    EXPECT_FALSE(listener_->has_peer());
  }
}

TEST_F(ApartHandshake, NoHandleSaysEncryptedAndApart) {
  listen(true);
  HandleInfo changed = info_;
  changed.encrypts = changed.proves = true;
  EXPECT_EQ(decode_handle(encode_handle(changed)).status().code(), Code::kProtocol);
}

// In a new process, as the settings are read once.
TEST(SoftApartPlugin, DeviceMemoryAndEncryptionExcludeEachOther) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const SecretFile secret(std::string(32, 's'));
  const auto init = [&] {
    ::setenv("UCCL_TCPX_SECRET_FILE", secret.path().c_str(), 1);
    ::setenv("UCCL_TCPX_SECURITY", "encrypt", 1);
    ::setenv("UCCL_TCPX_NETWORK", "devmem", 1);
    ::_exit(linked_table()->init(nullptr));
  };
  EXPECT_EXIT(init(), ::testing::ExitedWithCode(abi::kNcclInternalError),
              "UCCL_TCPX_NETWORK=devmem needs IPsec, PSP or WireGuard");
}

}  // namespace
}  // namespace tcpx::testing
