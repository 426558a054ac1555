// A receiving comm against streams cut anywhere: the messages must not depend on the pieces in which bytes arrive.
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/socket_io.h"
#include "measure/pattern.h"
#include "net/soft/recv_comm.h"
#include "net/soft/wire.h"
#include "tests/support/expect_log.h"
#include "tests/support/soft_wire.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using namespace soft;

constexpr uint32_t kChunkBytes = 2 * kPageBytes;  // the longest

class ReceivedStream : public ::testing::TestWithParam<MemoryType> {
 protected:
  struct Sent {
    std::vector<std::byte> bytes;
    abi::TcpxRequest* request = nullptr;
    MemoryBuffer target;
  };

  /// A message, with a random cut, whose chunks go to random sockets, after the bytes already queued there.
  void write_message(size_t bytes) {
    Sent& message = messages_.emplace_back();
    message.bytes.resize(bytes);
    fill_pattern(message.bytes, messages_.size());
    const auto total = static_cast<uint32_t>(bytes);
    const uint32_t cut = random_() % 2 == 0 ? kPageBytes : kChunkBytes;
    for (uint32_t offset = 0; offset == 0 || offset < total; offset += cut) {
      std::vector<std::byte>& stream = streams_[random_() % 2];
      const uint32_t size = std::min(cut, total - offset);
      const auto header =
          encoded({.sequence = messages_.size() - 1, .total = total, .offset = offset, .bytes = size, .cut = cut});
      stream.insert(stream.end(), header.begin(), header.end());
      stream.insert(stream.end(), message.bytes.begin() + offset, message.bytes.begin() + offset + size);
    }
  }

  /// Sends the next 1 to `most` bytes of one stream.
  void send_some(size_t most) {
    const size_t socket = random_() % 2;
    const size_t bytes = std::min(streams_[socket].size() - sent_[socket], 1 + random_() % most);
    send_bytes(wire_.theirs.data[socket], std::span(streams_[socket]).subspan(sent_[socket], bytes));
    sent_[socket] += bytes;
  }
  bool all_sent() const { return sent_[0] == streams_[0].size() && sent_[1] == streams_[1].size(); }

  void post(SoftRecvComm& comm, Sent& message) {
    const size_t room = std::max<size_t>(message.bytes.size(), 1) + 100;
    message.target = *memory_->allocate_device(0, room);
    SoftRegion* region = must(comm.register_region(message.target.device(), room, GetParam()));
    message.request = must(comm.irecv(message.target.device(), static_cast<int>(room), 0, region));
  }

  void expect_arrived(SoftRecvComm& comm, const Sent& message) {
    ASSERT_TRUE(wait_until([&] { return comm.test(message.request)->done; }));
    EXPECT_EQ(message.request->size, static_cast<int>(message.bytes.size()));
    std::vector<std::byte> arrived(message.target.host(), message.target.host() + message.bytes.size());
    if (GetParam() == MemoryType::kCuda) {
      const auto* list = static_cast<const Fragment*>(message.request->unpack_slot.mem);
      size_t covered = 0;
      for (uint64_t i = 0; i < *message.request->unpack_slot.cnt; ++i) {
        ASSERT_LE(list[i].dst_off + list[i].len, arrived.size());
        ASSERT_LE(list[i].len, kPageBytes) << "a fragment is one page at most: consumers copy fragments side by side";
        std::memcpy(arrived.data() + list[i].dst_off, pool_->host_base() + list[i].src_off, list[i].len);
        covered += list[i].len;
      }
      EXPECT_EQ(covered, arrived.size());
    }
    EXPECT_TRUE(arrived == message.bytes);
    EXPECT_TRUE(comm.consumed(message.request).is_ok());
  }

  const std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  const std::shared_ptr<IoPool> io_ = *IoPool::create(2);
  const std::shared_ptr<PagePool> pool_ = *PagePool::create(*memory_, 0, uint64_t{64} * kPageBytes);
  Wire wire_{kChunkBytes};
  std::vector<Sent> messages_;
  std::vector<std::byte> streams_[2];
  size_t sent_[2] = {};
  std::mt19937 random_;
};
INSTANTIATE_TEST_SUITE_P(Memory, ReceivedStream, ::testing::Values(MemoryType::kHost, MemoryType::kCuda),
                         [](const auto& memory) { return memory.param == MemoryType::kHost ? "host" : "device"; });

TEST_P(ReceivedStream, MayBeCutAnywhere) {
  const auto comm = must(SoftRecvComm::create(*memory_, 0, io_, pool_, std::move(wire_.ours)));
  const size_t sizes[] = {0, 1, 8, 1023, 1024, 1025, 4096, kChunkBytes - 1, kChunkBytes, kChunkBytes + 1, 5 * kChunkBytes + 77};
  constexpr size_t kFills = 60;
  messages_.reserve(kFills * kQueueDepth);
  for (size_t round = 0; round < kFills; ++round) {
    // Pieces from single bytes, which end inside headers, to many messages at once.
    const size_t most = round % 3 == 0 ? 60 : round % 3 == 1 ? 3000 : 100000;
    const size_t first = messages_.size(), before = random_() % (kQueueDepth + 1);
    for (size_t i = 0; i < kQueueDepth; ++i) write_message(sizes[random_() % (most == 60 ? 6 : std::size(sizes))]);
    for (size_t i = 0; i < before; ++i) post(*comm, messages_[first + i]);
    while (!all_sent() && !HasFatalFailure()) send_some(most);
    for (size_t i = before; i < kQueueDepth; ++i) post(*comm, messages_[first + i]);  // they wait for these
    for (size_t i = 0; i < kQueueDepth && !HasFatalFailure(); ++i) expect_arrived(*comm, messages_[first + i]);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_EQ(pool_->free_count(), pool_->page_count());
}

TEST_P(ReceivedStream, EndsAfterItsLastByteAndNotBefore) {
  const auto comm = must(SoftRecvComm::create(*memory_, 0, io_, pool_, std::move(wire_.ours)));
  messages_.reserve(3);
  for (const size_t bytes : {8, 100, 5000}) write_message(bytes);
  while (!all_sent()) send_some(100000);
  wire_.theirs = {};  // all of it may be read together with the end
  for (Sent& message : messages_) post(*comm, message);
  for (const Sent& message : messages_) expect_arrived(*comm, message);
}

/// Towards a NIC: a socket that is woken for much at once.
class SleepyReader : public ::testing::Test {
 protected:
  static constexpr uint32_t kLong = 1 << 20, kSleep = 128 * 1024;
  void SetUp() override {
    allow_log("tcpx-soft");
    start();
  }
  void start() {
    fd_ = wire_->ours.data[0].get();
    wire_->ours.spare_copies = true;
    comm_ = must(SoftRecvComm::create(*memory_, 0, io_, pool_, std::move(wire_->ours)));
    fill_pattern(sent_, 1);
  }
  abi::TcpxRequest* post(size_t bytes) {
    SoftRegion* region = must(comm_->register_region(got_.data(), got_.size(), MemoryType::kHost));
    return must(comm_->irecv(got_.data(), static_cast<int>(bytes), 0, region));
  }
  void send_header(size_t socket, uint32_t total, uint32_t offset, uint32_t bytes, uint32_t cut, uint64_t sequence = 0) {
    send_bytes(wire_->theirs.data[socket],
               encoded({.sequence = sequence, .total = total, .offset = offset, .bytes = bytes, .cut = cut}));
  }
  void send_payload(size_t socket, size_t begin, size_t end) {
    send_bytes(wire_->theirs.data[socket], std::span(sent_).subspan(begin, end - begin));
  }
  bool wakes_at(uint32_t bytes) {
    int mark = 0;
    socklen_t length = sizeof mark;
    return wait_until([&] { return ::getsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &mark, &length) == 0 && mark == int(bytes); });
  }
  /// For up to a sixteenth of the window, which grows.
  bool sleeps_long() {
    return wait_until([&] {
      int mark = 0;
      socklen_t length = sizeof mark;
      return ::getsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &mark, &length) == 0 && mark > 1 &&
             mark <= static_cast<int>(std::min(kSleep, receive_window(fd_) / 16));
    });
  }
  /// For no more than the rest of its chunk. Where its last read ended is chance. @param missing bytes that were not sent
  bool sleeps_for_the_rest(uint32_t missing) {
    return wait_until([&] {
      int mark = 0, unread = 0;
      socklen_t length = sizeof mark;
      return ::getsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &mark, &length) == 0 && ::ioctl(fd_, FIONREAD, &unread) == 0 &&
             std::max(unread, 1) < mark && mark <= std::min<int>(kSleep, static_cast<int>(missing) + unread);
    });
  }

  const std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  const std::shared_ptr<IoPool> io_ = *IoPool::create(1);
  const std::shared_ptr<PagePool> pool_ = *PagePool::create(*memory_, 0, uint64_t{64} * kPageBytes);
  std::unique_ptr<Wire> wire_ = std::make_unique<Wire>(kLong);
  int fd_ = -1;
  std::vector<std::byte> sent_ = std::vector<std::byte>(3 * kLong), got_ = std::vector<std::byte>(3 * kLong);
  std::unique_ptr<SoftRecvComm> comm_;
};

TEST_F(SleepyReader, SleepsNoLongerThanItsChunkGoesOn) {
  const abi::TcpxRequest* first = post(kLong);
  send_header(0, kLong, 0, kLong, kLong);
  send_payload(0, 0, 10'000);
  EXPECT_TRUE(sleeps_long());
  send_payload(0, 10'000, kLong - 5'000);
  EXPECT_TRUE(sleeps_for_the_rest(5'000));
  send_payload(0, kLong - 5'000, kLong);
  EXPECT_TRUE(is_done(*comm_, first));
  EXPECT_TRUE(wakes_at(1)) << "a header is short";
  EXPECT_TRUE(std::equal(sent_.begin(), sent_.begin() + kLong, got_.begin()));

  const abi::TcpxRequest* second = post(100'000);
  send_header(0, 100'000, 0, 100'000, kLong, 1);
  send_payload(0, 0, 50'000);
  wait_until_quiet(wire_->theirs.data[0]);
  EXPECT_TRUE(wakes_at(1)) << "a short chunk";
  send_payload(0, 50'000, 100'000);
  EXPECT_TRUE(is_done(*comm_, second));
}

TEST_F(SleepyReader, BytesInAnyPiecesChangeNothing) {
  std::mt19937 random(3);
  for (uint64_t sequence = 0; sequence < 20; ++sequence) {
    const uint32_t bytes = 1 + random() % (3 * kLong);
    const abi::TcpxRequest* request = post(bytes);
    for (uint32_t offset = 0; offset < bytes; offset += kLong) {
      const size_t socket = random() % 2;
      const uint32_t size = std::min(kLong, bytes - offset);
      send_header(socket, bytes, offset, size, kLong, sequence);
      for (uint32_t sent = 0; sent < size;) {
        const uint32_t piece = std::min<uint32_t>(size - sent, 1 + random() % 300'000);
        send_payload(socket, offset + sent, offset + sent + piece);
        sent += piece;
      }
    }
    ASSERT_TRUE(is_done(*comm_, request)) << "message " << sequence;
    ASSERT_TRUE(std::equal(sent_.begin(), sent_.begin() + bytes, got_.begin())) << "message " << sequence;
    std::fill(got_.begin(), got_.end(), std::byte{});
  }
}

TEST_F(SleepyReader, NoticesTheEndOfItsPeer) {
  for (const bool reset : {false, true}) {
    SCOPED_TRACE(reset);
    wire_ = std::make_unique<Wire>(kLong);
    start();
    const abi::TcpxRequest* request = post(kLong);
    send_header(0, kLong, 0, kLong, kLong);
    send_payload(0, 0, 10'000);
    EXPECT_TRUE(sleeps_long());
    send_payload(0, 10'000, 20'000);
    const linger at_once = {.l_onoff = reset, .l_linger = 0};
    ASSERT_EQ(::setsockopt(wire_->theirs.data[0].get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    wire_->theirs.data.clear();
    EXPECT_EQ(error_of(*comm_, request).code(), Code::kPeerGone);
  }
}

// One socket is lost. What the other one brings meanwhile wakes nobody for longer than the comm would wait for a silent peer.
TEST_F(SleepyReader, ASlowStreamIsNoSilence) {
  const abi::TcpxRequest* request = post(2 * kLong);
  send_header(1, 2 * kLong, kLong, kLong, kLong);
  send_payload(1, kLong, 2 * kLong);
  send_header(0, 2 * kLong, 0, kLong, kLong);
  send_payload(0, 0, 10'000);
  EXPECT_TRUE(sleeps_long());
  ::shutdown(wire_->theirs.data[1].get(), SHUT_WR);
  for (size_t sent = 10'000; sent < 11'200; sent += 100) {
    send_payload(0, sent, sent + 100);
    const auto answer = wait_until([&] { return !comm_->test(request).is_ok(); }, std::chrono::milliseconds(100));
    ASSERT_FALSE(answer) << sent;
  }
  send_payload(0, 11'200, kLong);
  EXPECT_TRUE(is_done(*comm_, request));
}

TEST_F(SleepyReader, UnreadBytesOfASilentPeerAreNoLife) {
  const abi::TcpxRequest* request = post(2 * kLong);
  send_header(0, 2 * kLong, 0, kLong, kLong);
  send_payload(0, 0, 10'000);
  EXPECT_TRUE(sleeps_long());
  send_payload(0, 10'000, 20'000);
  ::shutdown(wire_->theirs.data[1].get(), SHUT_WR);
  EXPECT_EQ(error_of(*comm_, request).code(), Code::kPeerGone);
}

}  // namespace
}  // namespace tcpx::testing
