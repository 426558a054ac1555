// A receiving comm on its own, over a connection whose other end is controlled by the test.
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "measure/pattern.h"
#include "net/soft/page_pool.h"
#include "net/soft/recv_comm.h"
#include "tests/support/expect_log.h"
#include "tests/support/io_blocker.h"
#include "tests/support/soft_wire.h"

namespace tcpx::testing {
namespace {

using namespace soft;

constexpr uint32_t kPoolPages = 16;

/// The header of one page of a message.
ChunkHeader page_of(uint64_t sequence, uint32_t total_pages, uint32_t page) {
  return {.sequence = sequence,
          .total = total_pages * kPageBytes,
          .offset = page * kPageBytes,
          .bytes = kPageBytes,
          .cut = kPageBytes};
}

class ReceivingFlow : public ::testing::Test {
 protected:
  void SetUp() override {
    allow_log("tcpx-soft");
    comm_ = make_comm(wire_, io_, pool_);
    region_ = must(comm_->register_region(target_.device(), target_.size(), MemoryType::kCuda));
  }
  std::unique_ptr<SoftRecvComm> make_comm(Wire& wire, std::shared_ptr<IoPool> io, std::shared_ptr<PagePool> pool) {
    return must(SoftRecvComm::create(*memory_, 0, std::move(io), std::move(pool), std::move(wire.ours)));
  }
  abi::TcpxRequest* post(uint32_t pages) {
    return must(comm_->irecv(target_.device(), static_cast<int>(pages * kPageBytes), 0, region_));
  }
  void send_header(size_t socket, uint64_t sequence, uint32_t total_pages, uint32_t page) {
    send_bytes(wire_.theirs.data[socket], encoded(page_of(sequence, total_pages, page)));
  }
  void send_payload(size_t socket) { send_bytes(wire_.theirs.data[socket], std::vector<std::byte>(kPageBytes)); }
  void send_page(size_t socket, uint64_t sequence, uint32_t total_pages, uint32_t page) {
    send_header(socket, sequence, total_pages, page);
    send_payload(socket);
  }

  struct Hog final : PagePool::Client {
    void pages_available() override {}
  };
  /// Posts a message of 13 pages, of which 12 are free, and waits until it stands in line for them, before `other`.
  abi::TcpxRequest* wait_for_pages(Hog& other) {
    EXPECT_TRUE(pool_->try_take(other, 4, held_));
    abi::TcpxRequest* request = post(13);
    send_header(0, 0, 13, 0);
    EXPECT_TRUE(wait_until([&] {
      if (!pool_->try_take(other, 1, more_)) return true;
      pool_->give_back(other, more_);
      return false;
    })) << "who holds pages must wait behind who holds none";
    return request;
  }
  void give_back_all(Hog& other) {
    pool_->give_back(other, more_);
    pool_->give_back(other, held_);
  }

  std::shared_ptr<IoPool> io_ = *IoPool::create(1);
  std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  Wire wire_{kPageBytes};
  std::shared_ptr<PagePool> pool_ = *PagePool::create(*memory_, 0, uint64_t{kPoolPages} * kPageBytes);
  MemoryBuffer target_ = *memory_->allocate_device(0, uint64_t{kPoolPages} * kPageBytes);
  std::unique_ptr<SoftRecvComm> comm_;
  SoftRegion* region_ = nullptr;
  std::vector<uint32_t> held_, more_;  // pages of a hog
};

TEST_F(ReceivingFlow, ACutSocketIsAnErrorThoughALaterMessageWaitsForPages) {
  abi::TcpxRequest* oldest = post(2);
  post(6);
  post(1);
  send_page(0, 0, 2, 0);
  send_page(0, 1, 6, 0);
  send_header(0, 2, 1, 0);  // 8 pages held, 8 free: this one waits, until the comm itself consumes
  ASSERT_TRUE(wait_until([&] { return pool_->free_count() == 8; }));
  wire_.theirs.data[1].reset();  // with the second page of the oldest message
  EXPECT_EQ(error_of(*comm_, oldest).code(), Code::kPeerGone);
}

TEST_F(ReceivingFlow, WaitingLongForPagesAfterThePeerHasLeftLosesNothing) {
  Hog hog;
  ASSERT_TRUE(pool_->try_take(hog, kPoolPages, held_));
  abi::TcpxRequest* request = post(1);
  send_header(0, 0, 1, 0);
  wire_.theirs.control.reset();
  wire_.theirs.data[1].reset();
  EXPECT_FALSE(wait_until([&] { return !comm_->test(request).is_ok(); }, std::chrono::milliseconds(700)))
      << "waiting for pages is not an error";
  pool_->give_back(hog, held_);
  ASSERT_TRUE(wait_until([&] { return pool_->free_count() == kPoolPages - 1; }));
  EXPECT_TRUE(comm_->test(request).is_ok()) << "the message has only just begun";
  send_payload(0);
  EXPECT_TRUE(is_done(*comm_, request));
  EXPECT_EQ(request->size, static_cast<int>(kPageBytes));
  EXPECT_TRUE(comm_->consumed(request).is_ok());
}

// An I/O thread with much to do, or a machine without a spare core, may leave a socket unread for longer than a peer may be
// silent. The bytes in it arrived in time.
TEST_F(ReceivingFlow, WhatAPeerHadSentBeforeItLeftIsReadHoweverLate) {
  Wire wire(kPageBytes);
  const auto io = *IoPool::create(2);
  Blocker blocker(*io, 1);  // of the second thread, which also gets the second socket
  comm_ = make_comm(wire, io, pool_);
  std::array<std::byte, 100> target{}, sent;
  fill_pattern(sent, 1);
  const auto region = must(comm_->register_region(target.data(), target.size(), MemoryType::kHost));
  const auto request = must(comm_->irecv(target.data(), static_cast<int>(target.size()), 0, region));
  send_chunk(wire.theirs.data[1], {.sequence = 0, .total = sent.size(), .offset = 0, .bytes = sent.size(), .cut = kPageBytes},
             sent);
  wire.theirs = {};
  EXPECT_FALSE(wait_until([&] { return !comm_->test(request).is_ok(); }, std::chrono::milliseconds(1200)));
  blocker.release();
  EXPECT_TRUE(is_done(*comm_, request));
  EXPECT_TRUE(target == sent);
  comm_.reset();  // before its memory
}

// A killed peer leaves incomplete messages, and after them others, which wait for receives that are not posted.
TEST_F(ReceivingFlow, AReceiveWithoutHopeIsGivenUpAtOnce) {
  Duration fastest = kTestDeadline;
  for (int i = 0; i < 10 && fastest > std::chrono::milliseconds(250); ++i) {  // a busy machine may be slow, but not every time
    Wire wire(kPageBytes);
    comm_ = make_comm(wire, io_, *PagePool::create(*memory_, 0, kPageBytes));
    region_ = must(comm_->register_region(target_.device(), target_.size(), MemoryType::kHost));
    const auto request = post(2);
    for (const uint64_t sequence : {0, 1}) {  // the first pages of two messages
      send_chunk(wire.theirs.data[sequence], page_of(sequence, 2, 0), std::vector<std::byte>(kPageBytes));
    }
    wire.theirs = {};
    const TimePoint gone = Clock::steady().now();
    EXPECT_EQ(error_of(*comm_, request).code(), Code::kPeerGone);
    fastest = std::min(fastest, Clock::steady().now() - gone);
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(250));
}

TEST_F(ReceivingFlow, AFailedCommLetsGoOfMemory) {
  abi::TcpxRequest* request = post(1);
  wire_.theirs = {};
  EXPECT_EQ(error_of(*comm_, request).code(), Code::kPeerGone);
  EXPECT_TRUE(comm_->deregister_region(region_).is_ok()) << "this receive can never end: nobody else will free the registration";
}

TEST_F(ReceivingFlow, ChunksThatArriveInOnePieceAreAllRead) {
  constexpr uint32_t kPages = 15;
  abi::TcpxRequest* request = post(kPages);
  std::vector<std::byte> stream;
  for (uint32_t page = 0; page < kPages; ++page) {
    const auto header = encoded(page_of(0, kPages, page));
    stream.insert(stream.end(), header.begin(), header.end());
    stream.resize(stream.size() + kPageBytes);
  }
  send_bytes(wire_.theirs.data[0], stream);
  EXPECT_TRUE(is_done(*comm_, request)) << "one event announced them all";
}

TEST_F(ReceivingFlow, AReusedSlotShowsNoCountOfItsFormerLife) {
  uint64_t* first_count = nullptr;
  for (uint64_t sequence = 0; sequence < kQueueDepth; ++sequence) {
    abi::TcpxRequest* request = post(1);
    send_page(0, sequence, 1, 0);
    ASSERT_TRUE(is_done(*comm_, request));
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
  EXPECT_EQ(error_of(*comm_, request).code(), Code::kPeerGone);
  const std::vector<std::byte> late(kPageBytes, std::byte{0x77});
  EXPECT_EQ(::send(wire_.theirs.data[0].get(), late.data(), late.size(), MSG_NOSIGNAL), static_cast<ssize_t>(late.size()));
  EXPECT_FALSE(
      wait_until([&] { return std::atomic_ref(*target_.host()).load() != std::byte{0}; }, std::chrono::milliseconds(200)));
}

TEST_F(ReceivingFlow, ACommThatFailsWhileItWaitsForPagesHoldsNobodyUp) {
  Hog other;
  abi::TcpxRequest* request = wait_for_pages(other);
  send_bytes(wire_.theirs.data[1], std::vector<std::byte>(kChunkHeaderBytes));  // garbage
  EXPECT_TRUE(wait_until([&] { return pool_->try_take(other, 1, more_); })) << "though nobody tests the comm that has failed";
  EXPECT_FALSE(comm_->test(request).is_ok());
  give_back_all(other);
}

// A number lower by kQueueDepth uses the same slot.
TEST_F(ReceivingFlow, AChunkOfAMessageThatIsOverIsNoneOfTheMessageInItsPlace) {
  for (uint64_t sequence = 0; sequence < kQueueDepth; ++sequence) {
    abi::TcpxRequest* request = post(2);
    for (uint32_t page = 0; page < 2; ++page) send_page(0, sequence, 2, page);
    ASSERT_TRUE(is_done(*comm_, request));
    EXPECT_TRUE(comm_->consumed(request).is_ok());
  }
  abi::TcpxRequest* request = post(2);
  send_page(0, kQueueDepth, 2, 0);
  send_page(0, 0, 2, 1);
  const Status status = error_of(*comm_, request);
  EXPECT_NE(status.detail().find("message 0 is over already"), std::string::npos) << status.to_string();
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
  send_bytes(wire_.theirs.data[0], half);
  ASSERT_TRUE(wait_until([&] { return peek(target_.host()) == std::byte{0x77}; }));
  EXPECT_FALSE(comm_->test(*request)->done);
  EXPECT_TRUE(comm_->deregister_region(region).is_ok());
  target_ = {};  // a thread that still writes there now crashes
  EXPECT_EQ(::send(wire_.theirs.data[0].get(), half.data(), half.size(), MSG_NOSIGNAL), static_cast<ssize_t>(half.size()));
  EXPECT_EQ(comm_->test(*request).status().code(), Code::kSystem) << "test looked before and found nothing: there is news now";
}

TEST_F(ReceivingFlow, MemoryIsLetGoWhileItsMessageWaitsForPages) {
  Hog other;
  wait_for_pages(other);
  EXPECT_OK(comm_->deregister_region(region_));
  EXPECT_TRUE(pool_->try_take(other, 1, more_)) << "held up by a comm that waits no more";
  give_back_all(other);
}

TEST_F(ReceivingFlow, ClosingGivesEveryPageBack) {
  abi::TcpxRequest* complete = post(2);
  for (uint32_t page = 0; page < 2; ++page) send_page(page, 0, 2, page);
  ASSERT_TRUE(is_done(*comm_, complete));
  post(3);
  send_header(0, 1, 3, 0);
  ASSERT_TRUE(wait_until([&] { return pool_->free_count() == kPoolPages - 5; }));
  comm_.reset();
  EXPECT_EQ(pool_->free_count(), kPoolPages);
}

// A control socket never carries data. A client that sends any is not the expected peer.
TEST_F(ReceivingFlow, BytesOnTheControlSocketEndIt) {
  abi::TcpxRequest* request = post(1);
  send_bytes(wire_.theirs.control, std::vector<std::byte>(1));
  const Status status = error_of(*comm_, request);
  EXPECT_NE(status.detail().find("bytes where none belong"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace tcpx::testing
