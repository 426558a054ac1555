// Sends from memory that the host cannot read: copies that end late, out of step or with an error, and a pool that many share.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <future>
#include <random>
#include <thread>

#include "tests/support/io_blocker.h"
#include "tests/support/staged_sends.h"

namespace tcpx::testing {
namespace {

constexpr std::chrono::milliseconds kAWhile{100};  // long enough to see that something does not happen

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

// A socket copies ahead, but not what others are about to take, nor more than its share: written one after the other, it would be late.
TEST_F(SoftStaging, EverySocketTakesItsShareOfAFewMessages) {
  constexpr size_t kSockets = 4, kBytes = kSockets * size_t{Chunking::kLeastChunkBytes};
  io_ = *IoPool::create(kSockets);
  for (const size_t messages : {1, 2}) {
    std::deque<Blocker> blockers;
    for (size_t thread = 0; thread < kSockets; ++thread) blockers.emplace_back(*io_, thread);
    memory_.hold_copies();
    auto sender = make(kMiB, kBytes, 1, 0, kSockets);
    memory_.pretend_current(1);  // so that the sockets copy
    for (size_t i = 0; i < messages; ++i) sender->post(0, kBytes);
    for (Blocker& blocker : blockers) blocker.release();
    EXPECT_TRUE(some_copy_held(messages * kSockets)) << "until then no socket is done with its first chunk";
    memory_.release_copies();
    sender->expect_arrived_and_done();
    for (const Reader& reader : sender->readers) EXPECT_EQ(reader.chunks, messages);
    memory_.pretend_current(0);
  }
}

TEST_F(SoftStaging, ASocketWithAShortMessageLeavesTheNextToThoseWhoCome) {
  constexpr size_t kSockets = 4, kChunk = Chunking::kLeastChunkBytes;
  io_ = *IoPool::create(kSockets);
  std::deque<Blocker> blockers;
  for (size_t thread = 0; thread < kSockets; ++thread) blockers.emplace_back(*io_, thread);
  memory_.hold_copies();
  auto sender = make(kMiB, 3 * kChunk, 1, 0, kSockets);
  memory_.pretend_current(1);  // so that the sockets copy
  sender->post(0, kChunk / 2);
  sender->post(0, 3 * kChunk);
  for (Blocker& blocker : blockers) blocker.release();
  EXPECT_TRUE(some_copy_held(kSockets)) << "until then no socket is done with its first chunk";
  memory_.release_copies();
  sender->expect_arrived_and_done();
  for (const Reader& reader : sender->readers) EXPECT_EQ(reader.chunks, 1u);
  memory_.pretend_current(0);
}

TEST_F(SoftStaging, ASocketOfAStreamCopiesAhead) {
  constexpr uint32_t kChunk = Chunking::kLeastChunkBytes;
  memory_.hold_copies();
  memory_.pretend_current(1);
  auto sender = make(kChunk, kMiB, 1, 0, 1);
  for (int message = 0; message < 3; ++message) sender->post(0, kChunk);
  EXPECT_TRUE(some_copy_held(3)) << "nobody else takes them";
  memory_.pretend_current(0);
  memory_.release_copies();
  sender->expect_arrived_and_done();
}

TEST_F(SoftStaging, WhileOnePieceIsWrittenTheNextAreCopied) {
  memory_.hold_copies();
  auto sender = make(4 * kMiB, 4 * kMiB, 1, 0, 1);
  sender->post(0, 4 * kMiB);
  ASSERT_TRUE(some_copy_held(2)) << "one socket, one chunk, several copies";
  memory_.end_copy(1);
  EXPECT_FALSE(wait_until([&] { return sender->has_read_more_than(0); }, kAWhile)) << "the first piece is not there yet";
  memory_.end_copy(0);
  EXPECT_TRUE(wait_until([&] { return sender->has_read_more_than(StagingPool::kSlotBytes); })) << "the first two are there";
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
  io_ = *IoPool::create(1);
  auto failing = make(kLarge, kMiB, 1, 4096);
  auto other = make(kMiB, kMiB, 2);
  std::vector<StagingPool::Slot> all;
  fill_and_wait_in_line(*failing, all);
  ASSERT_FALSE(HasFatalFailure());
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

// A lone message is copied by one copy for each slot, however many sockets send it and wherever they cut it.
TEST_F(SoftStaging, SocketsShareTheSlotsOfALoneMessage) {
  constexpr size_t kSockets = 7, kBytes = kSockets * 19 * kPageBytes;
  static_assert(kBytes > StagingPool::kSlotBytes && kBytes < StagingPool::kStagedSlots * StagingPool::kSlotBytes);
  io_ = *IoPool::create(kSockets);
  auto sender = make(kMiB, kBytes, 1, 0, kSockets);
  ASSERT_TRUE(copies_itself(*sender));
  memory_.hold_copies();
  sender->post(0, kBytes);
  ASSERT_TRUE(some_copy_held(2));
  EXPECT_FALSE(wait_until([&] { return memory_.held_copies() > 2; }, kAWhile));
  memory_.end_copy(1);
  EXPECT_FALSE(wait_until([&] { return sender->read(); }, kAWhile)) << "the first one is not there yet";
  memory_.release_copies();
  sender->expect_arrived_and_done();
  for (const Reader& reader : sender->readers) EXPECT_GE(reader.chunks, 1u);
  EXPECT_TRUE(all_slots_come_back());
}

// Its peer reads nothing, and others need the slot. It may have it again, and send more, when they have done.
TEST_F(SoftStaging, AStalledMessageGivesItsSharedSlotBack) {
  constexpr size_t kSockets = 2, kBytes = StagingPool::kSlotBytes;
  auto stalled = make(64 * kKiB, kBytes, 1, 4096, kSockets);
  ASSERT_TRUE(copies_itself(*stalled));
  stalled->post(0, kBytes);
  ASSERT_TRUE(wait_until([&] { return staging_->free_count() == StagingPool::kSlots - 1; }));
  auto all = take_all_slots();
  auto other = make(kMiB, kMiB, 2);
  other->post(0, 1000);
  other->expect_arrived_and_done();
  all.clear();
  stalled->expect_arrived_and_done();
}

// The threads that write are shared, so a message is alone only if no other connection has much to send.
TEST_F(SoftStaging, AMessageBesideThoseOfOthersIsCutForFewer) {
  const auto chunks_of_one = [this] {
    auto sender = make(kMiB, kMiB, 2);
    sender->post_from_host(0, kMiB);
    sender->expect_arrived_and_done();
    size_t chunks = 0;
    for (const Reader& reader : sender->readers) chunks += reader.chunks;
    return chunks;
  };
  auto stalled = make(kMiB, 8 * kMiB, 1, 4096);
  EXPECT_EQ(chunks_of_one(), 2u) << "one for each thread";
  stalled->post_from_host(0, 8 * kMiB);
  EXPECT_EQ(chunks_of_one(), 1u);
  stalled.reset();
  EXPECT_EQ(chunks_of_one(), 2u) << "what is never sent counts no more";
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

TEST_F(SoftStaging, WhoIsFullWithARecordPassesItsSlotOn) {
  io_ = *IoPool::create(1);
  encrypts_ = true;
  auto full = make(kLarge, kMiB, 1, 4096, 1);
  encrypts_ = false;
  auto other = make(kMiB, kMiB, 2);
  std::vector<StagingPool::Slot> all;
  fill_and_wait_in_line(*full, all);
  ASSERT_FALSE(HasFatalFailure());
  wait_until_quiet(full->wire.theirs.data[0]);
  other->post(0, 1000);
  all.pop_back();
  other->expect_arrived_and_done();
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

TEST_F(SoftStaging, HostMemoryNeedsNone) {
  Sender sender(memory_, io_, staging_, 16 * kPageBytes, kMiB, 3, 0);
  for (const size_t bytes : {size_t{5}, kMiB, size_t{0}, size_t{70000}, size_t{20000}, size_t{1}})
    sender.post_from_host(0, bytes);
  sender.expect_arrived_and_done();
  EXPECT_EQ(memory_.mapped_bytes(), 0u);
}

}  // namespace
}  // namespace tcpx::testing
