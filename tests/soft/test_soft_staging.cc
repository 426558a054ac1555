// Sends from memory that the host cannot read: copies that end late, out of step or with an error, and a pool that many share.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <future>
#include <random>
#include <thread>

#include "base/log.h"
#include "measure/pattern.h"
#include "net/soft/send_comm.h"
#include "net/soft/send_socket.h"
#include "tests/support/expect_log.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/io_blocker.h"
#include "tests/support/soft_wire.h"
#include "tests/support/units.h"

namespace tcpx::testing {
namespace {

using namespace soft;

constexpr std::chrono::milliseconds kAWhile{100};  // long enough to see that something does not happen

/// Data received from one data socket so far.
class Reader {
 public:
  Reader(int fd, uint32_t most_chunk_bytes) : fd_(fd), most_chunk_bytes_(most_chunk_bytes) {}
  size_t chunks = 0;  ///< begun

  /// Reads the available bytes into `messages`, which have their sizes already.
  void read(std::vector<std::vector<std::byte>>& messages, size_t& bytes_read) {
    for (;;) {
      std::span<std::byte> into = std::span(header_).subspan(header_read_);
      if (into.empty())
        into = std::span(messages.at(chunk_.sequence)).subspan(chunk_.offset + payload_read_, chunk_.bytes - payload_read_);
      const ssize_t n = ::recv(fd_, into.data(), into.size(), MSG_DONTWAIT);
      if (n <= 0) return;
      if (header_read_ < kChunkHeaderBytes) {
        header_read_ += static_cast<size_t>(n);
        if (header_read_ < kChunkHeaderBytes) continue;
        const auto header = must(decode_chunk_header(header_, most_chunk_bytes_));
        ASSERT_LT(header.sequence, messages.size());
        ASSERT_EQ(header.total, messages[header.sequence].size());
        chunk_ = header;
        payload_read_ = 0;
        ++chunks;
      } else {
        payload_read_ += static_cast<uint32_t>(n);
        bytes_read += static_cast<size_t>(n);
      }
      if (payload_read_ == chunk_.bytes) header_read_ = 0;
    }
  }

 private:
  int fd_;
  uint32_t most_chunk_bytes_;
  std::array<std::byte, kChunkHeaderBytes> header_{};
  size_t header_read_ = 0;
  ChunkHeader chunk_;
  uint32_t payload_read_ = 0;
};

/// A sending comm with hidden memory full of a pattern, and its peer.
class Sender {
 public:
  Sender(HiddenMemoryOps& memory, std::shared_ptr<IoPool> io, std::shared_ptr<StagingPool> staging, uint32_t chunk_bytes,
         size_t bytes, uint64_t seed, int buffer_bytes, size_t data_sockets = 2, bool spare_copies = false)
      : wire(chunk_bytes, buffer_bytes, data_sockets), content(bytes), source(std::move(*memory.allocate_device(0, bytes))) {
    wire.ours.spare_copies = spare_copies;
    comm = must(SoftSendComm::create(memory, 0, std::move(io), std::move(staging), std::move(wire.ours)));
    fill_pattern(content, seed);
    EXPECT_TRUE((*memory.make_copy_lane(0))->copy(source.device(), content.data(), bytes).is_ok());
    for (const UniqueFd& fd : wire.theirs.data) readers.emplace_back(fd.get(), wire.chunk_bytes());
  }

  void register_source() { region = must(comm->register_region(source.device(), content.size(), MemoryType::kCuda)); }
  abi::TcpxRequest* post(size_t offset, size_t bytes) { return post(source.device(), region, offset, bytes); }
  /// The same bytes, from memory that the host can read.
  abi::TcpxRequest* post_from_host(size_t offset, size_t bytes) {
    if (host_region == nullptr) host_region = *comm->register_region(content.data(), content.size(), MemoryType::kHost);
    return post(content.data(), host_region, offset, bytes);
  }
  abi::TcpxRequest* post(const std::byte* from, SoftRegion* with, size_t offset, size_t bytes) {
    requests.push_back(must(comm->isend(from + offset, static_cast<int>(bytes), 0, with)));
    sent.emplace_back(offset, bytes);
    arrived.emplace_back(bytes);
    return requests.back();
  }
  /// Reads the available bytes. True when all posted messages have arrived.
  bool read() {
    for (Reader& reader : readers) reader.read(arrived, bytes_read);
    size_t posted = 0;
    for (const auto& message : arrived) posted += message.size();
    return bytes_read == posted;
  }
  bool has_read_more_than(size_t bytes) {
    read();
    return bytes_read > bytes;
  }
  void expect_done() {
    for (; tested < requests.size(); ++tested)
      ASSERT_TRUE(wait_until([&] { return comm->test(requests[tested])->done; })) << "message " << tested;
  }
  void expect_arrived_and_done() {
    expect_arrived();
    expect_done();
  }
  /// The comm may have been closed.
  void expect_arrived() {
    ASSERT_TRUE(wait_until([&] { return read(); })) << bytes_read << " bytes";
    for (; compared < requests.size(); ++compared) {
      const auto [offset, bytes] = sent[compared];
      EXPECT_TRUE(
          std::equal(arrived[compared].begin(), arrived[compared].end(), content.begin() + static_cast<std::ptrdiff_t>(offset)))
          << "message " << compared;
    }
  }

  Wire wire;
  const int data_fd = wire.ours.data[0].get();  // the comm's
  std::vector<std::byte> content;
  MemoryBuffer source;
  std::unique_ptr<SoftSendComm> comm;
  SoftRegion *region = nullptr, *host_region = nullptr;
  std::vector<Reader> readers;
  std::vector<std::pair<size_t, size_t>> sent;
  std::vector<std::vector<std::byte>> arrived;
  std::vector<abi::TcpxRequest*> requests;
  size_t bytes_read = 0, tested = 0, compared = 0;
};

class SoftStaging : public ::testing::Test {
 protected:
  void SetUp() override { allow_log("tcpx-soft"); }
  void TearDown() override {
    EXPECT_EQ(memory_.held_copies(), 0u);
    EXPECT_EQ(staging_.use_count(), 1) << "a comm is left";
    EXPECT_EQ(staging_->free_count(), prepared_ ? StagingPool::kSlots : 0) << "slots lost";
    staging_.reset();
    EXPECT_EQ(memory_.mapped_bytes(), 0u);
  }
  std::unique_ptr<Sender> make(uint32_t chunk_bytes, size_t bytes, uint64_t seed = 1, int buffer_bytes = 0,
                               size_t data_sockets = 2) {
    prepared_ = true;
    auto sender =
        std::make_unique<Sender>(memory_, io_, staging_, chunk_bytes, bytes, seed, buffer_bytes, data_sockets, spare_copies_);
    sender->register_source();
    return sender;
  }
  /// A sender by one socket whose message of kUnread bytes is done, though its peer has room for a part only: the kernel has the rest.
  std::unique_ptr<Sender> make_unread(uint64_t seed) {
    auto sender = make(kMiB, kMiB, seed, 0, 1);
    const int room = 256 * 1024, little = 64 * 1024;
    EXPECT_EQ(::setsockopt(sender->wire.theirs.data[0].get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    EXPECT_EQ(::setsockopt(sender->data_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    sender->post(0, kUnread);
    sender->expect_done();
    return sender;
  }
  void send_through_all_slots(uint64_t seed) {
    auto other = make(kMiB, kMiB, seed);
    for (uint32_t i = 0; i < StagingPool::kSlots; ++i) {
      other->post(0, kMiB);
      other->expect_arrived_and_done();
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  bool all_slots_come_back() {
    return wait_until([&] { return staging_->free_count() == StagingPool::kSlots; });
  }
  std::vector<StagingPool::Slot> take_all_slots() {
    std::vector<StagingPool::Slot> all;
    while (auto slot = staging_->try_take()) all.push_back(std::move(slot));
    return all;
  }
  /// Sends until isend starts a copy itself: the sockets are idle once their handlers have run, after the first messages.
  bool copies_itself(Sender& sender) {
    return wait_until([&] {
      sender.post(0, 8);
      sender.expect_arrived_and_done();
      return memory_.copies_started_by(std::this_thread::get_id()) > 0;
    });
  }
  bool some_copy_held(size_t count = 1) {
    return wait_until([&] { return memory_.held_copies() >= count; });
  }

  HiddenMemoryOps memory_;
  std::shared_ptr<IoPool> io_ = *IoPool::create(2);
  std::shared_ptr<StagingPool> staging_ = std::make_shared<StagingPool>(memory_, 0);
  bool prepared_ = false, spare_copies_ = false;
  static constexpr size_t kUnread = kFirstPieceBytes;
};

TEST_F(SoftStaging, EverySizeArrivesAsItIs) {
  auto sender = make(16 * kPageBytes, 4 * kMiB);
  for (const size_t bytes : {size_t{1}, size_t{4095}, size_t{65536}, size_t{65537}, size_t{0}, 3 * kMiB + 1})
    sender->post(bytes % 7 * 4096 + bytes % 13, bytes);
  sender->expect_arrived_and_done();
  auto large_chunks = make(4 * kMiB, 6 * kMiB);
  large_chunks->post(1, 6 * kMiB - 1);
  large_chunks->expect_arrived_and_done();
}

// The first piece that a socket ever copies need not be the first in its ring.
TEST_F(SoftStaging, AnEmptyMessageBeforeTheFirstCopyChangesNothing) {
  io_ = *IoPool::create(1);
  Blocker blocker(*io_);
  auto sender = make(16 * kPageBytes, kMiB);
  sender->post(0, 0);
  sender->post(0, kMiB);
  blocker.release();
  sender->expect_arrived_and_done();
}

TEST_F(SoftStaging, LateCopiesOutOfStepChangeNoByte) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    SCOPED_TRACE(seed);
    auto sender = make(kPageBytes << random() % 9, 4 * kMiB, seed);
    memory_.hold_copies();
    for (uint32_t i = 0; i < 12; ++i) {
      const size_t bytes = random() % 4 == 0 ? random() % 400000 : random() % 3000;
      sender->post(random() % (3 * kMiB), bytes);
    }
    const bool reads_late = random() % 2 == 0;
    EXPECT_TRUE(wait_until([&] {
      const size_t held = memory_.held_copies();
      if (held > 0) memory_.end_copy(random() % held);
      return (!reads_late || random() % 8 == 0) && sender->read() && held == 0;
    }));
    sender->expect_arrived_and_done();
    memory_.release_copies();
  }
}

// A socket copies ahead, but not what others are about to take: written one after the other, it would be late.
TEST_F(SoftStaging, EverySocketTakesItsShareOfALoneMessage) {
  constexpr size_t kSockets = 4, kBytes = kSockets * size_t{Chunking::kLeastChunkBytes};
  io_ = *IoPool::create(1);
  Blocker blocker(*io_);
  memory_.hold_copies();
  auto sender = make(kMiB, kBytes, 1, 0, kSockets);
  sender->post(0, kBytes);
  blocker.release();
  EXPECT_TRUE(some_copy_held(kSockets)) << "until then no socket is done with its first chunk, and takes another one only ahead";
  memory_.release_copies();
  sender->expect_arrived_and_done();
  for (const Reader& reader : sender->readers) EXPECT_EQ(reader.chunks, 1u);
}

TEST_F(SoftStaging, ASocketOfAStreamCopiesAhead) {
  constexpr uint32_t kChunk = Chunking::kLeastChunkBytes;
  memory_.hold_copies();
  auto sender = make(kChunk, kMiB, 1, 0, 1);
  for (int message = 0; message < 3; ++message) sender->post(0, kChunk);
  EXPECT_TRUE(some_copy_held(3)) << "nobody else takes them";
  memory_.release_copies();
  sender->expect_arrived_and_done();
}

TEST_F(SoftStaging, WhileOnePieceIsWrittenTheNextAreCopied) {
  memory_.hold_copies();
  auto sender = make(4 * kMiB, 4 * kMiB, 1, 0, 1);
  sender->post(0, 4 * kMiB);
  ASSERT_TRUE(some_copy_held(3)) << "one socket, one chunk, several copies";
  memory_.end_copy(1);
  EXPECT_FALSE(wait_until([&] { return sender->has_read_more_than(0); }, kAWhile)) << "the first piece is not there yet";
  memory_.end_copy(0);
  EXPECT_TRUE(wait_until([&] { return sender->has_read_more_than(kFirstPieceBytes); })) << "the first two are there";
  memory_.release_copies();
  sender->expect_arrived_and_done();
}

TEST_F(SoftStaging, AChunkOfManyPiecesIsSentWithTheLastOfThem) {
  constexpr size_t kBytes = 16 * kMiB;
  constexpr int kBuffer = 1 << 19;  // more than the first piece of a chunk, less than the chunk
  auto sender = make(kBytes, kBytes, 1, kBuffer);
  abi::TcpxRequest* request = sender->post(0, kBytes);
  for (const UniqueFd& fd : sender->wire.theirs.data) {
    ASSERT_OK(wait_for(fd.get(), POLLIN, soon())) << "a chunk for each socket";
    wait_until_quiet(fd);
  }
  EXPECT_FALSE(sender->comm->test(request)->done);
  sender->expect_arrived_and_done();
}

// A socket that is full with a message from host memory, whose next one waits for a slot. The comm is not tested, as that would
// close it.
TEST_F(SoftStaging, WhoFailsInLineHoldsNobodyUp) {
  constexpr uint32_t kLarge = Chunking::kLeastChunkBytes;  // on one socket, and more than its buffers take
  io_ = *IoPool::create(1);
  auto failing = make(kLarge, kMiB, 1, 4096);
  auto other = make(kMiB, kMiB, 2);
  Blocker blocker(*io_);
  auto all = take_all_slots();
  failing->post_from_host(0, kLarge);
  failing->post(0, 1000);
  blocker.release();
  ASSERT_TRUE(wait_until([&] { return staging_->is_contended(); }));
  failing->wire.theirs.data.clear();  // so that writing fails
  EXPECT_TRUE(wait_until([&] { return !staging_->is_contended(); }));
  other->post(0, 1000);
  all.resize(1);
  other->expect_arrived_and_done();
}

TEST_F(SoftStaging, CopyingOneMessageDoesNotHoldTheThreadUp) {
  io_ = *IoPool::create(1);
  memory_.hold_copies();
  auto stuck = make(kMiB, kMiB, 1);
  stuck->post(0, 1000);
  ASSERT_TRUE(some_copy_held());
  auto other = make(kMiB, kMiB, 2);
  other->post_from_host(0, 100000);
  other->expect_arrived_and_done();
  EXPECT_EQ(stuck->bytes_read, 0u);
  memory_.release_copies();
  stuck->expect_arrived_and_done();
}

TEST_F(SoftStaging, AMessageOnAnIdleCommIsCopiedFromIsendOn) {
  auto sender = make(kMiB, kMiB);
  const auto copied_here = [&] { return memory_.copies_started_by(std::this_thread::get_id()); };
  EXPECT_TRUE(copies_itself(*sender));
  const size_t before = copied_here();
  memory_.pretend_current(1);
  for (int i = 0; i < 20; ++i) {
    sender->post(0, 8);
    sender->expect_arrived_and_done();
  }
  EXPECT_EQ(copied_here(), before) << "another GPU is current for this thread: not its work";
  memory_.pretend_current(0);
}

TEST_F(SoftStaging, ACopyThatCannotStartFailsTheComm) {
  auto sender = make(kPageBytes, kMiB);
  memory_.break_copies();
  const auto request = sender->comm->isend(sender->source.device(), 100000, 0, sender->region);
  Status failure = request.status();
  EXPECT_TRUE(wait_until([&] { return !failure.is_ok() || !(failure = sender->comm->test(*request).status()).is_ok(); }));
  EXPECT_EQ(failure.code(), Code::kSystem);
  EXPECT_NE(failure.to_string().find("broken by the test"), std::string::npos) << failure.to_string();
  EXPECT_EQ(sender->comm->isend(sender->source.device(), 1, 0, sender->region).status().code(), Code::kSystem) << "for good";
  EXPECT_TRUE(sender->comm->deregister_region(sender->region).is_ok());
}

TEST_F(SoftStaging, ACopyThatEndsBadlyFailsTheComm) {
  memory_.hold_copies();
  auto sender = make(kMiB, 2 * kMiB);
  abi::TcpxRequest* request = sender->post(0, 2 * kMiB);
  ASSERT_TRUE(some_copy_held());
  memory_.end_copy(0, false);
  memory_.release_copies();
  Result<TestAnswer> answer = TestAnswer{};
  EXPECT_TRUE(wait_until([&] { return !sender->read() && !(answer = sender->comm->test(request)).is_ok(); }));
  EXPECT_EQ(answer.status().code(), Code::kCuda);
  EXPECT_EQ(answer.status().native(), 700);
}

TEST_F(SoftStaging, ClosingWaitsForCopiesInFlight) {
  memory_.hold_copies();
  auto sender = make(kMiB, 2 * kMiB);
  sender->post(0, 2 * kMiB);
  ASSERT_TRUE(some_copy_held(2));
  auto closing = std::async(std::launch::async, [&] { sender->comm.reset(); });
  EXPECT_EQ(closing.wait_for(kAWhile), std::future_status::timeout);
  while (memory_.held_copies() > 1) memory_.end_copy(memory_.held_copies() - 1);
  EXPECT_EQ(closing.wait_for(kAWhile), std::future_status::timeout) << "one is still reading";
  memory_.release_copies();
}

TEST_F(SoftStaging, AFailureIsToldOnlyAfterCopiesInFlight) {
  memory_.hold_copies();
  auto sender = make(kMiB, 2 * kMiB);
  abi::TcpxRequest* request = sender->post(0, 2 * kMiB);
  ASSERT_TRUE(some_copy_held(2));
  sender->wire.theirs.control.reset();
  auto told = std::async(std::launch::async, [&] {
    EXPECT_TRUE(wait_until([&] { return !sender->comm->test(request).is_ok(); }));
    EXPECT_TRUE(sender->comm->deregister_region(sender->region).is_ok());
  });
  EXPECT_EQ(told.wait_for(kAWhile), std::future_status::timeout) << "whoever is told may free the memory";
  memory_.release_copies();
}

TEST_F(SoftStaging, ManyCommsShareAFewSlots) {
  constexpr size_t kComms = 100, kBytes = 300000;
  std::vector<std::unique_ptr<Sender>> senders;
  for (size_t i = 0; i < kComms; ++i) senders.push_back(make(16 * kPageBytes, kBytes, i));
  EXPECT_EQ(memory_.mapped_bytes(), size_t{StagingPool::kSlots} * StagingPool::kSlotBytes) << "no more than for one";
  memory_.hold_copies();  // so that all want slots at the same time
  for (auto& sender : senders) sender->post(0, kBytes);
  EXPECT_TRUE(wait_until([&] { return staging_->free_count() == 0; }));
  EXPECT_TRUE(some_copy_held());
  memory_.release_copies();
  for (auto& sender : senders) sender->expect_arrived_and_done();
  EXPECT_TRUE(wait_until([&] { return staging_->free_count() == StagingPool::kSlots; })) << "idle comms hold none";
}

TEST_F(SoftStaging, StalledPeersStarveNobodyAndLoseNothing) {
  constexpr size_t kStalled = 4, kBytes = 2 * kMiB;
  constexpr int kSmallBuffer = 64 * 1024;
  std::vector<std::unique_ptr<Sender>> stalled;
  for (size_t i = 0; i < kStalled; ++i) stalled.push_back(make(512 * 1024, kBytes, i, kSmallBuffer));
  for (auto& sender : stalled) sender->post(0, kBytes);
  uint32_t free = StagingPool::kSlots;
  while (wait_until([&] { return staging_->free_count() != free; }, kAWhile)) free = staging_->free_count();
  ASSERT_LE(free, StagingPool::kSlots - 2 * kStalled) << "at least one per socket";
  const auto spare = take_all_slots();
  auto lively = make(512 * 1024, kMiB, 1000);
  for (int i = 0; i < 10; ++i) {  // with slots that only the stalled ones have
    lively->post(0, kMiB);
    lively->expect_arrived_and_done();
    ASSERT_FALSE(HasFatalFailure());
  }
  for (auto& sender : stalled) sender->expect_arrived_and_done();
}

TEST_F(SoftStaging, WhoIsClosedInLineHoldsNobodyUp) {
  auto first = make(kMiB, kMiB, 1);
  auto second = make(kMiB, kMiB, 2);
  auto all = take_all_slots();
  first->post(0, 1000);
  ASSERT_TRUE(wait_until([&] { return staging_->is_contended(); }));
  second->post(0, 1000);
  first->comm.reset();
  all.resize(1);
  second->expect_arrived_and_done();
}

// The first message of a socket has no slot, the second one came with one.
TEST_F(SoftStaging, ASlotOfALaterMessageDoesNotKeepTheFirstOutOfTheLine) {
  io_ = *IoPool::create(1);
  auto sender = make(kMiB, kMiB);
  ASSERT_TRUE(copies_itself(*sender));
  Blocker blocker(*io_);
  auto all = take_all_slots();
  sender->post(0, 1000);
  all.pop_back();
  sender->post(1000, 1000);
  EXPECT_EQ(staging_->free_count(), 0u) << "the second has a slot, the first has not";
  blocker.release();
  sender->expect_arrived_and_done();
}

class SoftZeroCopy : public SoftStaging {
 protected:
  SoftZeroCopy() { spare_copies_ = true; }
  void TearDown() override {
    EXPECT_TRUE(all_slots_come_back()) << staging_->free_count();
    SoftStaging::TearDown();
  }
};

TEST_F(SoftZeroCopy, ChangesNoByte) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    SCOPED_TRACE(seed);
    auto sender = make(seed % 3 == 0 ? 4 * kMiB : kPageBytes << random() % 9, 4 * kMiB, seed, 0, 1 + random() % 3);
    for (uint32_t i = 0; i < 12; ++i) {
      const size_t bytes = random() % 3 == 0 ? random() % 3000 : random() % (2 * kMiB);
      sender->post(random() % (2 * kMiB), bytes);
    }
    EXPECT_TRUE(wait_until([&] { return random() % 64 == 0 && sender->read(); }));
    sender->expect_arrived_and_done();
    EXPECT_TRUE(all_slots_come_back()) << "the comm is still open";
  }
}

// Here the kernel reads the slots only when the peer makes room, and in between its queue is nothing but references to them.
TEST_F(SoftZeroCopy, NoSlotIsReusedThatTheKernelReads) {
  auto unread = make_unread(1);
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 1) << "this test shows nothing";
  send_through_all_slots(2);
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 1);
  unread->expect_arrived();
}

TEST_F(SoftZeroCopy, NoSlotIsReusedThatTheKernelReadsForAClosedComm) {
  auto unread = make_unread(1);
  unread->comm.reset();
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 1) << "this test shows nothing";
  send_through_all_slots(2);
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 1);
  unread->expect_arrived();
  EXPECT_TRUE(is_dropped(unread->wire.theirs.data[0])) << "closing ends the stream";
}

// The last comm takes the pool with it.
TEST_F(SoftZeroCopy, BytesArriveThoughThePoolIsGone) {
  auto unread = make_unread(1);
  unread->comm.reset();
  staging_ = std::make_shared<StagingPool>(memory_, 0);
  send_through_all_slots(2);
  unread->expect_arrived();
}

TEST_F(SoftZeroCopy, APeerThatEndsGivesTheSlotsBack) {
  auto open = make_unread(1), closed = make_unread(2);
  closed->comm.reset();
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 2);
  open->wire.theirs = {};
  closed->wire.theirs = {};
  EXPECT_TRUE(all_slots_come_back());
}

TEST_F(SoftZeroCopy, PeersThatReadNothingLeaveSlotsToOthers) {
  std::vector<std::unique_ptr<Sender>> unread;
  for (uint32_t i = 0; i < StagingPool::kSlots; ++i) {
    unread.push_back(make_unread(i));
    ASSERT_FALSE(HasFatalFailure());
    if (i % 2 == 0) unread.back()->comm.reset();
  }
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - StagingPool::kMostLent) << "the others' bytes were copied";
  send_through_all_slots(1000);
  for (auto& sender : unread) sender->expect_arrived();
}

// Peers that read slowly, more slots wanted than there are, and comms that end in the middle.
TEST_F(SoftZeroCopy, ManySlowPeersGetTheirBytes) {
  constexpr size_t kSenders = 24;
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Sender>> senders;
  for (size_t i = 0; i < kSenders; ++i) {
    senders.push_back(make(4 * kMiB, 4 * kMiB, i, i % 2 == 0 ? 400 * 1024 : 0, 1 + i % 3));
    for (int message = 0; message < 4; ++message) senders.back()->post(random() % (2 * kMiB), random() % (2 * kMiB));
  }
  EXPECT_TRUE(wait_until([&] {
    bool all = true;
    for (auto& sender : senders) all = (random() % 8 == 0 && sender->read()) && all;
    return all || std::all_of(senders.begin(), senders.end(), [](auto& sender) { return sender->read(); });
  }));
  for (auto& sender : senders) {
    sender->expect_done();
    sender->comm.reset();
    sender->expect_arrived();
  }
}

/// Lets lines of level debug through.
struct DebugLog {
  DebugLog() { set_log_level(LogLevel::kDebug); }
  ~DebugLog() { set_log_level(LogLevel::kWarning); }
};

TEST_F(SoftZeroCopy, IsGivenUpWhereTheKernelCopiesAnyway) {
  const DebugLog debug;
  auto sender = make(kMiB, kMiB, 1, 0, 1);
  for (uint32_t i = 0; i < 4 * ZeroCopySends::kInVain; ++i) {
    sender->post(0, kMiB);
    sender->expect_arrived_and_done();
  }
  EXPECT_TRUE(wait_until([] { return logged("bytes are copied from now on: the kernel copies anyway"); }));
}

/// The effective capability to lock memory without limit, taken from this thread and those it starts.
class NoMemoryLocks {
 public:
  NoMemoryLocks() {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    EXPECT_EQ(::syscall(SYS_capget, &header, before_), 0);
    __user_cap_data_struct without[2] = {before_[0], before_[1]};
    without[0].effective &= ~(1u << CAP_IPC_LOCK);
    EXPECT_EQ(::syscall(SYS_capset, &header, without), 0);
    EXPECT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit_), 0);
    const rlimit none = {0, limit_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &none), 0);
  }
  ~NoMemoryLocks() {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    EXPECT_EQ(::syscall(SYS_capset, &header, before_), 0);
    EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit_), 0);
  }

 private:
  __user_cap_data_struct before_[2];
  rlimit limit_;
};

TEST_F(SoftZeroCopy, IsGivenUpWhereTheKernelRefuses) {
  const DebugLog debug;
  const NoMemoryLocks none;
  io_ = *IoPool::create(1);
  auto sender = make(kMiB, kMiB, 1, 0, 1);
  for (uint32_t i = 0; i < ZeroCopySends::kInVain; ++i) {
    sender->post(0, kMiB);
    sender->expect_arrived_and_done();
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_TRUE(logged("bytes are copied from now on: the kernel refuses zero copy"));
}

TEST_F(SoftStaging, HostMemoryNeedsNone) {
  Sender sender(memory_, io_, staging_, 16 * kPageBytes, kMiB, 3, 0);
  for (const size_t bytes : {size_t{5}, kMiB, size_t{0}, size_t{70000}, size_t{20000}, size_t{1}})
    sender.post_from_host(0, bytes);
  sender.expect_arrived_and_done();
  EXPECT_EQ(memory_.mapped_bytes(), 0u);
}

}  // namespace
}  // namespace tcpx::testing
