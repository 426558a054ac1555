// Messages that arrive together go out as one batch: one submit, one ticket for all of them. The guarantees for each message
// still hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"

namespace tcpx {
namespace {

using testing::Call;
using testing::expect_clean_success;
using testing::expect_let_go;
using testing::PipelinePair;
using testing::PipelinePairOptions;

constexpr size_t kChunk = 4096;
using Batches = std::vector<size_t>;

/// Drives the sender alone until all its messages are on the wire, for the receiver to find in one pass.
void put_on_the_wire(PipelinePair& p) {
  for (int i = 0; i < 100 && p.send->pending() > 0; ++i) p.send->progress();
  ASSERT_EQ(p.send->pending(), 0u);
}

TEST(PipelineBatches, WhatArrivedTogetherIsOneSubmit) {
  PipelinePair p;
  p.unpacker.queries_needed = 3;
  const TransferId sent = p.submit_send(0, 4 * kChunk + 1), got = p.submit_recv(0, 4 * kChunk + 1);
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  p.recv->progress();
  EXPECT_EQ(p.unpacker.batches(), Batches{5});
  p.recv->progress();
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 0u) << "the ticket is pending";
  p.recv->progress();
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 5u) << "one ticket ends for all of them";
  EXPECT_EQ(p.unpacker.queries(), 3u) << "a ticket known to be done is not asked again";
  expect_clean_success(p, sent, got, 0, 4 * kChunk + 1);
  EXPECT_TRUE(p.recv->close().is_ok());
  EXPECT_TRUE(p.send->close().is_ok());
  EXPECT_EQ(p.fake.open_comms(), 0u);
}

TEST(PipelineBatches, AWholeWindowIsOneSubmit) {
  PipelinePairOptions options;
  options.send.limits.window = kQueueDepth;
  PipelinePair p(options);
  const TransferId sent = p.submit_send(0, 2 * kQueueDepth * kChunk), got = p.submit_recv(0, 2 * kQueueDepth * kChunk);
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_EQ(p.unpacker.batches(), (Batches{kQueueDepth, kQueueDepth}));
  expect_clean_success(p, sent, got, 0, 2 * kQueueDepth * kChunk);
}

TEST(PipelineBatches, OneMessageDoesNotWaitForCompany) {
  PipelinePair p;
  p.unpacker.queries_needed = 100;
  const TransferId got = p.submit_recv(0, 3 * kChunk);
  p.submit_send(0, kChunk);
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  p.recv->progress();
  EXPECT_EQ(p.unpacker.batches(), Batches{1});
  p.submit_send(0, 2 * kChunk);
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  p.recv->progress();
  EXPECT_EQ(p.unpacker.batches(), (Batches{1, 2})) << "the first copy still runs";
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kDone);
}

TEST(PipelineBatches, TransfersShareABatch) {
  PipelinePair p;
  std::vector<std::pair<TransferId, TransferId>> ids;
  for (size_t i = 0; i < 8; ++i) ids.emplace_back(p.submit_send(i * kChunk, 100 + i, i), p.submit_recv(i * kChunk, 100 + i));
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  p.recv->progress();
  EXPECT_EQ(p.unpacker.batches(), Batches{8});
  ASSERT_TRUE(p.drive_to_end());
  for (size_t i = 8; i-- > 0;) expect_clean_success(p, ids[i].first, ids[i].second, i * kChunk, 100 + i, i);
}

TEST(PipelineBatches, AFullUnpackerGetsTheBatchLaterWithWhatArrivedSince) {
  PipelinePair p;
  p.unpacker.max_in_flight = 1;
  p.unpacker.queries_needed = 6;
  const TransferId got = p.submit_recv(0, 6 * kChunk);
  for (const size_t chunks : {1u, 3u, 2u}) {
    p.submit_send(0, chunks * kChunk);
    ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
    p.recv->progress();
    EXPECT_EQ(p.unpacker.batches(), Batches{1});
  }
  EXPECT_EQ(p.unpacker.refused(), 2u);
  EXPECT_NE(p.recv->flight_record().find("chunk 5 of transfer 1: arrived"), std::string::npos) << p.recv->flight_record();
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_EQ(p.unpacker.batches(), (Batches{1, 5}));
  EXPECT_EQ(p.fake.calls(Call::kReceived), 6u) << "asking the unpacker again does not read the lists again";
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kDone);
  EXPECT_TRUE(verify_pattern(p.received(kChunk, 3 * kChunk), 1).is_ok());
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
}

TEST(PipelineBatches, MessagesAreReadBeforeTheNextPostThoughTheUnpackerIsFull) {
  // The plugin answers `received` only until the comm posts again; the fake records later calls.
  PipelinePair p;
  p.unpacker.max_in_flight = 1;
  p.unpacker.queries_needed = 4;
  const TransferId sent = p.submit_send(0, 250000), got = p.submit_recv(0, 250000);
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_GT(*std::max_element(p.unpacker.batches().begin(), p.unpacker.batches().end()), 1u);
  expect_clean_success(p, sent, got, 0, 250000);
}

TEST(PipelineBatches, WhatNeedsNoCopyKeepsItsPlaceInTheBatch) {
  PipelinePair p;
  p.unpacker.queries_needed = 2;
  const RegisteredMemory in_place = p.target_as(MemoryType::kHost);
  const size_t sizes[] = {kChunk, 100, kChunk, 0, 200};
  std::vector<TransferId> sent, got;
  for (size_t i = 0; i < std::size(sizes); ++i) {
    sent.push_back(p.submit_send(i * kChunk, sizes[i], i));
    got.push_back(p.submit_recv(i == 1 || i == 4 ? in_place : p.recv_memory, i * kChunk, sizes[i]));
  }
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  p.recv->progress();
  EXPECT_EQ(p.unpacker.batches(), Batches{2}) << "no block for what needs no copy";
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 0u) << "none overtakes the first";
  p.recv->progress();
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 5u);
  for (size_t i = 0; i < std::size(sizes); ++i) expect_clean_success(p, sent[i], got[i], i * kChunk, sizes[i], i);
}

TEST(PipelineBatches, WhatNeedsNoCopyAndComesFirstWaitsForNobody) {
  PipelinePair p;
  p.unpacker.max_in_flight = 0;
  const RegisteredMemory in_place = p.target_as(MemoryType::kHost);
  const TransferId sent[] = {p.submit_send(0, 100), p.submit_send(kChunk, 0), p.submit_send(2 * kChunk, kChunk)};
  const TransferId host = p.submit_recv(in_place, 0, 100);
  const TransferId empty = p.submit_recv(kChunk, 0), copied = p.submit_recv(2 * kChunk, kChunk);
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  p.recv->progress();
  expect_clean_success(p, sent[0], host, 0, 100);
  expect_clean_success(p, sent[1], empty, kChunk, 0);
  EXPECT_EQ(p.recv->poll(copied).state, TransferState::kPending);
  p.unpacker.max_in_flight = 1;
  p.recv->progress();
  expect_clean_success(p, sent[2], copied, 2 * kChunk, kChunk);
}

TEST(PipelineBatches, ABadListWaitsForTheBatchBeforeIt) {
  testing::allow_log("scatter list of chunk 3 refused");
  PipelinePair p;
  p.unpacker.queries_needed = 20;
  p.fake.rewrite = [](uint64_t message, ReceivedMessage&, std::vector<Fragment>& list) {
    if (message == 3) list.clear();
  };
  const TransferId got = p.submit_recv(0, 5 * kChunk);
  for (const size_t chunks : {2u, 3u}) {
    p.submit_send(0, chunks * kChunk);
    ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
    p.recv->progress();
  }
  EXPECT_EQ(p.unpacker.batches(), Batches{2});
  EXPECT_EQ(p.recv->status().code(), Code::kProtocol);
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kPending) << "two chunks are being copied";
  EXPECT_EQ(p.fake.open_comms(), 2u) << "their pages must stay until then";
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kFailed);
  EXPECT_EQ(p.unpacker.queries(), 20u) << "a shared ticket is asked once per call while it drains, too";
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 0u);
  expect_let_go(p);
}

TEST(PipelineBatches, AFailedSubmitFailsTheWholeBatch) {
  PipelinePair p;
  p.unpacker.fail_submit_at = 2;
  const TransferId got = p.submit_recv(0, 5 * kChunk);
  for (const size_t chunks : {2u, 3u}) {
    p.submit_send(0, chunks * kChunk);
    ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
    p.recv->progress();
  }
  EXPECT_EQ(p.unpacker.batches(), Batches{2});
  const TransferAnswer answer = p.recv->poll(got);
  EXPECT_EQ(answer.status.code(), Code::kCuda);
  EXPECT_EQ(answer.bytes_done, 2 * kChunk);
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 2u) << "the batch before it was done";
  expect_let_go(p);
}

TEST(PipelineBatches, AnErrorAnywhereKeepsTheRestOfTheBatch) {
  testing::allow_log("scatter list of chunk 2 refused");
  testing::allow_log("recv channel gives up");
  const Status refused = testing::plugin_refused("scripted", "no");
  const auto bad_list = [](uint64_t message, ReceivedMessage&, std::vector<Fragment>& list) {
    if (message == 2) list[0].src_off = 0xfffffff0;
  };
  struct Error {
    const char* what;
    std::function<void(PipelinePair& p)> make;
    Code code;
    uint64_t submitted, given_back;
  };
  const Error errors[] = {
      {"a bad list in the middle", [&](PipelinePair& p) { p.fake.rewrite = bad_list; }, Code::kProtocol, 0, 0},
      {"a test, when three have arrived", [&](PipelinePair& p) { p.fake.fail_call(Call::kTestRecv, 4, refused); }, Code::kPlugin,
       0, 0},
      {"a shared ticket", [](PipelinePair& p) { p.unpacker.queries_needed = 5, p.unpacker.fail_query_at = 3; }, Code::kCuda, 1,
       0},
      {"giving back", [&](PipelinePair& p) { p.fake.fail_call(Call::kConsumed, 3, refused); }, Code::kPlugin, 1, 2},
  };
  for (const Error& error : errors) {
    SCOPED_TRACE(error.what);
    PipelinePair p;
    error.make(p);
    p.submit_send(0, 5 * kChunk);
    const TransferId got = p.submit_recv(0, 5 * kChunk);
    ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
    ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
    const TransferAnswer answer = p.recv->poll(got);
    EXPECT_EQ(answer.status.code(), error.code) << answer.status.to_string();
    EXPECT_EQ(answer.status.native(), error.code == Code::kPlugin ? 3 : answer.status.native());
    EXPECT_EQ(p.unpacker.submitted(), error.submitted);
    EXPECT_EQ(answer.bytes_done, error.given_back * kChunk);
    EXPECT_EQ(p.fake.calls(Call::kConsumed), error.given_back + (error.given_back > 0 ? 1 : 0))
        << "the call that failed is the last";
    const auto target = p.received(0, 5 * kChunk);
    const bool untouched = std::all_of(target.begin(), target.end(), [](std::byte b) { return b == PipelinePair::kUntouched; });
    EXPECT_TRUE(untouched || error.submitted > 0);
    expect_let_go(p);
  }
}

TEST(PipelineBatches, ACancelledConnectionWaitsForASharedTicket) {
  PipelinePair p;
  p.unpacker.queries_needed = 50;
  p.submit_send(0, 7 * kChunk);
  const TransferId got = p.submit_recv(0, 7 * kChunk);
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  p.recv->progress();
  ASSERT_EQ(p.unpacker.batches(), Batches{7});
  p.recv->cancel(Status(Code::kTimeout, "test", "enough"));
  ASSERT_TRUE(p.drive([&] {
    EXPECT_TRUE(p.recv->pending() > 0 || p.unpacker.in_flight() == 0) << "reported while the unpacker was at work";
    return p.recv->pending() == 0;
  }));
  EXPECT_EQ(p.recv->poll(got).status.detail(), "enough");
  EXPECT_EQ(p.unpacker.queries(), 50u);
  expect_let_go(p);
}

TEST(PipelineBatches, ABatchThatWaitsForAFullUnpackerIsNotWaitedFor) {
  PipelinePair p;
  p.unpacker.max_in_flight = 0;
  p.submit_send(0, 5 * kChunk);
  const TransferId got = p.submit_recv(0, 5 * kChunk);
  ASSERT_NO_FATAL_FAILURE(put_on_the_wire(p));
  p.recv->progress();
  p.recv->cancel(Status(Code::kTimeout, "test", "enough"));
  p.unpacker.max_in_flight = 16;
  p.recv->progress();
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kFailed);
  EXPECT_EQ(p.unpacker.submitted(), 0u) << "nothing starts on a failed connection";
  expect_let_go(p);
}

TEST(PipelineBatches, TheTapSeesEveryMessageOnceAndBlocksAreReused) {
  struct Tap : ReceiveTap {
    void arrived(const ChunkWork& work, const ReceivedMessage& message, const DescriptorBlock& block) override {
      chunks.push_back(work.chunk.index);
      lists.insert(block.fragments().data());
      intact +=
          message.bytes == block.message_bytes() && block.target().destination == work.data &&
                  verify_pattern({block.target().pool + block.fragments().front().src_off, message.bytes}, 1, work.chunk.offset)
                      .is_ok()
              ? 1
              : 0;
    }
    std::vector<uint64_t> chunks;
    std::set<const Fragment*> lists;
    int intact = 0;
  } tap;
  PipelinePairOptions options;
  options.tap = &tap;
  options.send.limits.window = 4;
  PipelinePair p(options);
  p.unpacker.max_in_flight = 2;
  p.unpacker.queries_needed = 5;
  testing::expect_moves(p, 60 * kChunk);
  std::vector<uint64_t> all(60);
  for (uint64_t i = 0; i < all.size(); ++i) all[i] = i;
  EXPECT_EQ(tap.chunks, all);
  EXPECT_EQ(tap.intact, 60);
  const size_t largest = *std::max_element(p.unpacker.batches().begin(), p.unpacker.batches().end());
  EXPECT_GT(largest, 1u);
  EXPECT_EQ(tap.lists.size(), largest) << "no memory beyond that of the largest batch";
}

}  // namespace
}  // namespace tcpx
