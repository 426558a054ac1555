// Sending and receiving comms on their own, over connections whose other ends are controlled by the test.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>

#include "base/socket_io.h"
#include "measure/pattern.h"
#include "net/soft/page_pool.h"
#include "net/soft/recv_comm.h"
#include "net/soft/recv_socket.h"
#include "net/soft/send_comm.h"
#include "net/soft/send_socket.h"
#include "tests/support/expect_log.h"
#include "tests/support/io_blocker.h"
#include "tests/support/soft_wire.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using namespace soft;

class SoftFlow : public ::testing::Test {
 protected:
  void SetUp() override { allow_log("tcpx-soft"); }
  std::shared_ptr<IoPool> io_ = *IoPool::create(1);
  std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
};

constexpr uint32_t kPoolPages = 16;

class ReceivingFlow : public SoftFlow {
 protected:
  void SetUp() override {
    SoftFlow::SetUp();
    auto created = SoftRecvComm::create(*memory_, 0, io_, pool_, std::move(wire_.ours));
    ASSERT_TRUE(created.is_ok());
    comm_ = std::move(*created);
    region_ = *comm_->register_region(target_.device(), target_.size(), MemoryType::kCuda);
  }
  abi::TcpxRequest* post(uint32_t pages) {
    auto request = comm_->irecv(target_.device(), static_cast<int>(pages * kPageBytes), 0, region_);
    EXPECT_TRUE(request.is_ok());
    return *request;
  }
  void send_header(size_t socket, uint64_t sequence, uint32_t total_pages, uint32_t page) {
    std::array<std::byte, kChunkHeaderBytes> bytes;
    encode_chunk_header({.sequence = sequence,
                         .total = total_pages * kPageBytes,
                         .offset = page * kPageBytes,
                         .bytes = kPageBytes,
                         .cut = kPageBytes},
                        bytes);
    EXPECT_TRUE(send_all(wire_.theirs.data[socket].get(), bytes, soon()).is_ok());
  }
  void send_payload(size_t socket) {
    const std::vector<std::byte> page(kPageBytes);
    EXPECT_TRUE(send_all(wire_.theirs.data[socket].get(), page, soon()).is_ok());
  }

  Wire wire_{kPageBytes};
  std::shared_ptr<PagePool> pool_ = *PagePool::create(*memory_, 0, uint64_t{kPoolPages} * kPageBytes);
  MemoryBuffer target_ = *memory_->allocate_device(0, uint64_t{kPoolPages} * kPageBytes);
  std::unique_ptr<SoftRecvComm> comm_;
  SoftRegion* region_ = nullptr;
};

struct Hog final : PagePool::Client {
  void pages_available() override {}
};

TEST_F(ReceivingFlow, ACutSocketIsAnErrorThoughALaterMessageWaitsForPages) {
  abi::TcpxRequest* oldest = post(2);
  post(6);
  post(1);
  send_header(0, 0, 2, 0);
  send_payload(0);
  send_header(0, 1, 6, 0);
  send_payload(0);
  send_header(0, 2, 1, 0);  // 8 pages held, 8 free: this one waits, until the comm itself consumes
  ASSERT_TRUE(wait_until([&] { return pool_->free_count() == 8; }));
  wire_.theirs.data[1].reset();  // with the second page of the oldest message
  Result<TestAnswer> answer = TestAnswer{};
  EXPECT_TRUE(wait_until([&] { return !(answer = comm_->test(oldest)).is_ok(); }, std::chrono::seconds(5))) << "a hang";
  EXPECT_EQ(answer.status().code(), Code::kPeerGone);
}

TEST_F(ReceivingFlow, WaitingLongForPagesAfterThePeerHasLeftLosesNothing) {
  Hog hog;
  std::vector<uint32_t> hogged;
  ASSERT_TRUE(pool_->try_take(hog, kPoolPages, hogged));
  abi::TcpxRequest* request = post(1);
  send_header(0, 0, 1, 0);
  wire_.theirs.control.reset();
  wire_.theirs.data[1].reset();
  EXPECT_FALSE(wait_until([&] { return !comm_->test(request).is_ok(); }, std::chrono::milliseconds(700)))
      << "waiting for pages is not an error";
  pool_->give_back(hog, hogged);
  ASSERT_TRUE(wait_until([&] { return pool_->free_count() == kPoolPages - 1; }));
  EXPECT_TRUE(comm_->test(request).is_ok()) << "the message has only just begun";
  send_payload(0);
  EXPECT_TRUE(wait_until([&] {
    const auto answer = comm_->test(request);
    return !answer.is_ok() || answer->done;
  }));
  EXPECT_EQ(request->size, static_cast<int>(kPageBytes));
  EXPECT_TRUE(comm_->consumed(request).is_ok());
}

// An I/O thread with much to do, or a machine without a spare core, may leave a socket unread for longer than a peer may be
// silent. The bytes in it arrived in time.
TEST_F(SoftFlow, WhatAPeerHadSentBeforeItLeftIsReadHoweverLate) {
  Wire wire(kPageBytes);
  const auto pool = *PagePool::create(*memory_, 0, kPageBytes);
  const auto io = *IoPool::create(2);
  io->next();
  const UniqueFd fd = quiet_fd();
  Blocker blocker;
  IoRegistration registration;
  ASSERT_TRUE(io->next().add(fd.get(), blocker, registration).is_ok());  // the second thread, which also gets the second socket
  ASSERT_TRUE(wait_until([&] { return blocker.entered.load(); }));
  const auto comm = SoftRecvComm::create(*memory_, 0, io, pool, std::move(wire.ours));
  ASSERT_TRUE(comm.is_ok());
  std::array<std::byte, 100> target{}, sent;
  fill_pattern(sent, 1);
  const auto region = (*comm)->register_region(target.data(), target.size(), MemoryType::kHost);
  const auto request = (*comm)->irecv(target.data(), static_cast<int>(target.size()), 0, *region);
  ASSERT_TRUE(request.is_ok());
  std::array<std::byte, kChunkHeaderBytes> header;
  encode_chunk_header({.sequence = 0, .total = sent.size(), .offset = 0, .bytes = sent.size(), .cut = kPageBytes}, header);
  EXPECT_TRUE(send_all(wire.theirs.data[1].get(), header, soon()).is_ok());
  EXPECT_TRUE(send_all(wire.theirs.data[1].get(), sent, soon()).is_ok());
  wire.theirs = {};
  Result<TestAnswer> answer = TestAnswer{};
  EXPECT_FALSE(wait_until([&] { return !(answer = (*comm)->test(*request)).is_ok(); }, std::chrono::milliseconds(1200)))
      << answer.status().to_string();
  blocker.release();
  EXPECT_TRUE(wait_until([&] { return !(answer = (*comm)->test(*request)).is_ok() || answer->done; }));
  EXPECT_TRUE(answer.is_ok() && answer->done);
  EXPECT_TRUE(target == sent);
}

// A killed peer leaves incomplete messages, and after them others, which wait for receives that are not posted.
TEST_F(SoftFlow, AReceiveWithoutHopeIsGivenUpAtOnce) {
  Duration fastest = kTestDeadline;
  for (int i = 0; i < 10 && fastest > std::chrono::milliseconds(250); ++i) {  // a busy machine may be slow, but not every time
    Wire wire(kPageBytes);
    const auto comm = SoftRecvComm::create(*memory_, 0, io_, *PagePool::create(*memory_, 0, kPageBytes), std::move(wire.ours));
    ASSERT_TRUE(comm.is_ok());
    std::vector<std::byte> target(2 * kPageBytes), page(kPageBytes);
    const auto region = (*comm)->register_region(target.data(), target.size(), MemoryType::kHost);
    const auto request = (*comm)->irecv(target.data(), static_cast<int>(target.size()), 0, *region);
    ASSERT_TRUE(request.is_ok());
    for (const uint64_t sequence : {0, 1}) {  // the first pages of two messages
      std::array<std::byte, kChunkHeaderBytes> header;
      encode_chunk_header({.sequence = sequence, .total = 2 * kPageBytes, .offset = 0, .bytes = kPageBytes, .cut = kPageBytes},
                          header);
      EXPECT_TRUE(send_all(wire.theirs.data[sequence].get(), header, soon()).is_ok());
      EXPECT_TRUE(send_all(wire.theirs.data[sequence].get(), page, soon()).is_ok());
    }
    wire.theirs = {};
    const TimePoint gone = Clock::steady().now();
    ASSERT_TRUE(wait_until([&] { return !(*comm)->test(*request).is_ok(); }));
    fastest = std::min(fastest, Clock::steady().now() - gone);
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(250));
}

TEST_F(ReceivingFlow, AFailedCommLetsGoOfMemory) {
  abi::TcpxRequest* request = post(1);
  wire_.theirs = {};
  ASSERT_TRUE(wait_until([&] { return !comm_->test(request).is_ok(); }));
  EXPECT_TRUE(comm_->deregister_region(region_).is_ok()) << "this receive can never end: nobody else will free the registration";
}

TEST_F(ReceivingFlow, ChunksThatArriveInOnePieceAreAllRead) {
  constexpr uint32_t kPages = 15;
  abi::TcpxRequest* request = post(kPages);
  std::vector<std::byte> stream;
  for (uint32_t page = 0; page < kPages; ++page) {
    std::array<std::byte, kChunkHeaderBytes> header;
    encode_chunk_header(
        {.sequence = 0, .total = kPages * kPageBytes, .offset = page * kPageBytes, .bytes = kPageBytes, .cut = kPageBytes},
        header);
    stream.insert(stream.end(), header.begin(), header.end());
    stream.resize(stream.size() + kPageBytes);
  }
  EXPECT_TRUE(send_all(wire_.theirs.data[0].get(), stream, soon()).is_ok());
  EXPECT_TRUE(wait_until([&] { return comm_->test(request)->done; })) << "one event announced them all";
}

TEST_F(ReceivingFlow, AReusedSlotShowsNoCountOfItsFormerLife) {
  uint64_t* first_count = nullptr;
  for (uint64_t sequence = 0; sequence < kQueueDepth; ++sequence) {
    abi::TcpxRequest* request = post(1);
    send_header(0, sequence, 1, 0);
    send_payload(0);
    ASSERT_TRUE(wait_until([&] { return comm_->test(request)->done; }));
    if (sequence == 0) first_count = request->unpack_slot.cnt;
    EXPECT_TRUE(comm_->consumed(request).is_ok());
  }
  EXPECT_EQ(*first_count, 1u);
  post(1);
  send_header(0, kQueueDepth, 1, 0);
  EXPECT_TRUE(wait_until([&] { return std::atomic_ref(*first_count).load() == 0; })) << "begun, not complete";
}

TEST_F(ReceivingFlow, AfterAnErrorNobodyWritesToTheBuffer) {
  region_ = *comm_->register_region(target_.device(), target_.size(), MemoryType::kHost);
  abi::TcpxRequest* request = post(2);
  send_header(0, 0, 2, 0);
  wire_.theirs.data[1].reset();
  ASSERT_TRUE(wait_until([&] { return !comm_->test(request).is_ok(); }));
  const std::vector<std::byte> late(kPageBytes, std::byte{0x77});
  EXPECT_EQ(::send(wire_.theirs.data[0].get(), late.data(), late.size(), MSG_NOSIGNAL), static_cast<ssize_t>(late.size()));
  EXPECT_FALSE(
      wait_until([&] { return std::atomic_ref(*target_.host()).load() != std::byte{0}; }, std::chrono::milliseconds(200)));
}

TEST_F(ReceivingFlow, ACommThatFailsWhileItWaitsForPagesHoldsNobodyUp) {
  Hog other;
  std::vector<uint32_t> held, more;
  ASSERT_TRUE(pool_->try_take(other, 4, held));
  abi::TcpxRequest* request = post(13);  // of which 12 are free
  send_header(0, 0, 13, 0);
  EXPECT_TRUE(wait_until([&] {
    if (!pool_->try_take(other, 1, more)) return true;
    pool_->give_back(other, more);
    return false;
  })) << "who holds pages must wait behind who holds none";
  const std::vector<std::byte> garbage(kChunkHeaderBytes);
  EXPECT_TRUE(send_all(wire_.theirs.data[1].get(), garbage, soon()).is_ok());
  EXPECT_TRUE(wait_until([&] { return pool_->try_take(other, 1, more); })) << "though nobody tests the comm that has failed";
  EXPECT_FALSE(comm_->test(request).is_ok());
  pool_->give_back(other, more);
  pool_->give_back(other, held);
}

// A number lower by kQueueDepth uses the same slot.
TEST_F(ReceivingFlow, AChunkOfAMessageThatIsOverIsNoneOfTheMessageInItsPlace) {
  for (uint64_t sequence = 0; sequence < kQueueDepth; ++sequence) {
    abi::TcpxRequest* request = post(2);
    for (uint32_t page = 0; page < 2; ++page) {
      send_header(0, sequence, 2, page);
      send_payload(0);
    }
    ASSERT_TRUE(wait_until([&] { return comm_->test(request)->done; }));
    EXPECT_TRUE(comm_->consumed(request).is_ok());
  }
  abi::TcpxRequest* request = post(2);
  send_header(0, kQueueDepth, 2, 0);
  send_payload(0);
  send_header(0, 0, 2, 1);
  send_payload(0);
  Result<TestAnswer> answer = TestAnswer{};
  EXPECT_TRUE(wait_until([&] { return !(answer = comm_->test(request)).is_ok() || answer->done; }));
  EXPECT_NE(answer.status().detail().find("message 0 is over already"), std::string::npos) << answer.status().to_string();
}

// Received bytes may be read once test says done. To see that a message is under way, this reads before: not for the thread
// checker.
[[gnu::no_sanitize_thread, gnu::noinline]] std::byte peek(const volatile std::byte* at) {
  return *at;
}

TEST_F(ReceivingFlow, MemoryIsLetGoInTheMiddleOfAMessage) {
  SoftRegion* region = *comm_->register_region(target_.device(), target_.size(), MemoryType::kHost);
  auto request = comm_->irecv(target_.device(), static_cast<int>(2 * kPageBytes), 0, region);
  send_header(0, 0, 2, 0);
  const std::vector<std::byte> half(kPageBytes / 2, std::byte{0x77});
  EXPECT_TRUE(send_all(wire_.theirs.data[0].get(), half, soon()).is_ok());
  ASSERT_TRUE(wait_until([&] { return peek(target_.host()) == std::byte{0x77}; }));
  EXPECT_FALSE(comm_->test(*request)->done);
  EXPECT_TRUE(comm_->deregister_region(region).is_ok());
  target_ = {};  // a thread that still writes there now crashes
  EXPECT_EQ(::send(wire_.theirs.data[0].get(), half.data(), half.size(), MSG_NOSIGNAL), static_cast<ssize_t>(half.size()));
  EXPECT_EQ(comm_->test(*request).status().code(), Code::kSystem) << "test looked before and found nothing: there is news now";
}

TEST_F(ReceivingFlow, MemoryIsLetGoWhileItsMessageWaitsForPages) {
  Hog other;
  std::vector<uint32_t> held, more;
  ASSERT_TRUE(pool_->try_take(other, 4, held));
  post(13);  // of which 12 are free
  send_header(0, 0, 13, 0);
  EXPECT_TRUE(wait_until([&] {
    if (!pool_->try_take(other, 1, more)) return true;
    pool_->give_back(other, more);
    return false;
  }));
  EXPECT_TRUE(comm_->deregister_region(region_).is_ok());
  EXPECT_TRUE(pool_->try_take(other, 1, more)) << "held up by a comm that waits no more";
  pool_->give_back(other, more);
  pool_->give_back(other, held);
}

TEST_F(ReceivingFlow, ClosingGivesEveryPageBack) {
  abi::TcpxRequest* complete = post(2);
  for (uint32_t page = 0; page < 2; ++page) {
    send_header(page, 0, 2, page);
    send_payload(page);
  }
  ASSERT_TRUE(wait_until([&] { return comm_->test(complete)->done; }));
  post(3);
  send_header(0, 1, 3, 0);
  ASSERT_TRUE(wait_until([&] { return pool_->free_count() == kPoolPages - 5; }));
  comm_.reset();
  EXPECT_EQ(pool_->free_count(), kPoolPages);
}

// A control socket never carries data. A client that sends any is not the expected peer.
TEST_F(ReceivingFlow, BytesOnTheControlSocketEndIt) {
  abi::TcpxRequest* request = post(1);
  const std::byte word{1};
  EXPECT_TRUE(send_all(wire_.theirs.control.get(), {&word, 1}, soon()).is_ok());
  Result<TestAnswer> answer = TestAnswer{};
  EXPECT_TRUE(wait_until([&] { return !(answer = comm_->test(request)).is_ok(); }));
  EXPECT_NE(answer.status().detail().find("bytes where none belong"), std::string::npos) << answer.status().to_string();
}

class SendingFlow : public SoftFlow {
 protected:
  void start(MemoryOps& memory, uint32_t chunk_bytes, size_t bytes, int buffer_bytes = 0) {
    wire_ = std::make_unique<Wire>(chunk_bytes, buffer_bytes);
    auto created = SoftSendComm::create(memory, 0, io_, std::make_shared<StagingPool>(memory, 0), std::move(wire_->ours));
    ASSERT_TRUE(created.is_ok());
    comm_ = std::move(*created);
    source_ = *memory.allocate_device(0, bytes);
    auto region = comm_->register_region(source_.device(), bytes, MemoryType::kCuda);
    ASSERT_TRUE(region.is_ok()) << region.status().to_string();
    region_ = *region;
  }
  abi::TcpxRequest* post(size_t bytes) {
    auto request = comm_->isend(source_.device(), static_cast<int>(bytes), 0, region_);
    EXPECT_TRUE(request.is_ok()) << request.status().to_string();
    return *request;
  }
  Result<ChunkHeader> read_header(size_t socket) {
    std::array<std::byte, kChunkHeaderBytes> bytes;
    TCPX_RETURN_IF_ERROR(recv_all(wire_->theirs.data[socket].get(), bytes, Deadline::after(std::chrono::seconds(5))));
    return decode_chunk_header(bytes, wire_->chunk_bytes());
  }
  /// The next data socket with something to read.
  size_t readable() {
    pollfd entries[2] = {{wire_->theirs.data[0].get(), POLLIN, 0}, {wire_->theirs.data[1].get(), POLLIN, 0}};
    EXPECT_GT(::poll(entries, 2, 10000), 0);
    return entries[0].revents != 0 ? 0 : 1;
  }

  using Cuts = std::map<uint64_t, uint32_t>;
  /// Reads chunks with `bytes` bytes of payload in total. @return the cut of each of their messages, by number.
  Cuts read_cuts(uint64_t bytes) {
    Cuts cuts;
    while (bytes > 0) {
      const size_t socket = readable();
      const auto header = read_header(socket);
      EXPECT_TRUE(header.is_ok()) << header.status().to_string();
      if (!header.is_ok()) break;
      std::vector<std::byte> payload(header->bytes);
      EXPECT_TRUE(recv_all(wire_->theirs.data[socket].get(), payload, soon()).is_ok());
      const uint32_t cut = cuts.emplace(header->sequence, header->cut).first->second;
      EXPECT_EQ(header->cut, cut) << "one message has one cut";
      bytes -= header->bytes;
    }
    return cuts;
  }

  /// Returns when nothing has arrived on data socket `index` for a while.
  void wait_until_quiet(size_t index) {
    int before = -1, now = 0;
    const auto grows = [&] { return ::ioctl(wire_->theirs.data[index].get(), FIONREAD, &now) == 0 && now != before; };
    for (; wait_until(grows, std::chrono::milliseconds(50)); before = now) continue;
  }

  // For messages of kMost bytes over two sockets, each with a share of kShare, which is more than its buffers take.
  static constexpr uint32_t kMost = 1 << 20, kShare = kMost / 2;
  static constexpr int kSmallBuffer = 64 * 1024;

  std::unique_ptr<Wire> wire_;
  std::unique_ptr<SoftSendComm> comm_;
  MemoryBuffer source_;
  SoftRegion* region_ = nullptr;
};

TEST_F(SendingFlow, ASocketThatIsFullHoldsNoOtherMessageUp) {
  constexpr uint32_t kLarge = Chunking::kLeastChunkBytes;  // on one socket, and more than its buffers take
  start(*memory_, kLarge, kLarge, 4096);
  post(kLarge);
  const size_t full = readable(), other = 1 - full;
  wait_until_quiet(full);
  for (uint64_t sequence = 1; sequence < kQueueDepth; ++sequence) {
    post(1);
    const auto header = read_header(other);
    ASSERT_TRUE(header.is_ok()) << "message " << sequence << " waits for the full socket: " << header.status().to_string();
    EXPECT_EQ(header->sequence, sequence);
    std::byte payload;
    ASSERT_TRUE(recv_all(wire_->theirs.data[other].get(), {&payload, 1}, soon()).is_ok());
  }
}

TEST_F(SendingFlow, TheMoreIsUnderWayTheLargerAreTheChunks) {
  start(*memory_, kMost, kMost, kSmallBuffer);
  std::vector<abi::TcpxRequest*> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(post(kMost));
  EXPECT_EQ(read_cuts(requests.size() * kMost), (Cuts{{0, kShare}, {1, kShare}, {2, kShare}, {3, kMost}, {4, kMost}}))
      << "two large chunks for each of two sockets are much";
  for (const abi::TcpxRequest* request : requests) EXPECT_TRUE(wait_until([&] { return comm_->test(request)->done; }));
  for (uint64_t sequence = requests.size(); sequence < 2 * kQueueDepth; ++sequence) {
    const abi::TcpxRequest* request = post(kMost);
    ASSERT_EQ(read_cuts(kMost), (Cuts{{sequence, kShare}})) << "what is done counts no more";
    EXPECT_TRUE(wait_until([&] { return comm_->test(request)->done; }));
  }
}

// Requests that are finished but not tested occupy a slot, not bytes.
TEST_F(SendingFlow, WhatIsWithTheKernelIsNotUnderWay) {
  start(*memory_, kMost, kMost, kSmallBuffer);
  for (uint64_t sequence = 0; sequence < kQueueDepth; ++sequence) {
    post(kMost);
    ASSERT_EQ(read_cuts(kMost), (Cuts{{sequence, kShare}}));
  }
}

TEST_F(SendingFlow, BytesOnTheControlSocketEndIt) {
  start(*memory_, kMost, kMost, kSmallBuffer);
  abi::TcpxRequest* request = post(kMost);
  const std::byte word{1};
  EXPECT_TRUE(send_all(wire_->theirs.control.get(), {&word, 1}, soon()).is_ok());
  Result<TestAnswer> answer = TestAnswer{};
  EXPECT_TRUE(wait_until([&] { return !(answer = comm_->test(request)).is_ok(); }));
  EXPECT_NE(answer.status().detail().find("bytes where none belong"), std::string::npos) << answer.status().to_string();
}

TEST_F(SendingFlow, ASendIsDoneWithItsLastByteAndNotBefore) {
  start(*memory_, kMost, kMost, kSmallBuffer);
  abi::TcpxRequest* request = post(kMost);
  for (const size_t socket : {0, 1}) wait_until_quiet(socket);
  EXPECT_FALSE(comm_->test(request)->done) << "each socket has more than the kernel took";
  read_cuts(kMost);
  EXPECT_TRUE(wait_until([&] { return comm_->test(request)->done; }));
}

TEST_F(SendingFlow, AFailedCommLetsGoOfMemory) {
  constexpr uint32_t kLarge = 8u << 20;
  start(*memory_, kLarge, kLarge);
  abi::TcpxRequest* request = post(kLarge);
  wire_->theirs = {};
  ASSERT_TRUE(wait_until([&] { return !comm_->test(request).is_ok(); }));
  EXPECT_TRUE(comm_->deregister_region(region_).is_ok());
}

}  // namespace
}  // namespace tcpx::testing
