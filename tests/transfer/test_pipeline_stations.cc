// One comm per direction over the scripted plugin, under a manual clock: the life of a transfer.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"

namespace tcpx {
namespace {

using testing::Call;
using testing::expect_clean_success;
using testing::expect_moves;
using testing::PipelinePair;
using testing::PipelinePairOptions;

TEST(PipelineStations, MovesTransfersOfEverySizeAroundTheChunk) {
  for (const size_t bytes : {0u, 1u, 4095u, 4096u, 4097u, 65536u, 200001u}) {
    PipelinePair p;
    expect_moves(p, bytes);
    EXPECT_EQ(p.target.host()[bytes], PipelinePair::kUntouched);
    EXPECT_EQ(p.fake.calls(Call::kConsumed), ChunkPlan::make(bytes, 4096)->count()) << "every chunk exactly once";
    EXPECT_TRUE(p.send->close().is_ok());
    EXPECT_TRUE(p.recv->close().is_ok());
    EXPECT_EQ(p.fake.open_comms(), 0u);
    EXPECT_EQ(p.fake.registrations(), 0u);
  }
}

// The plugin tells. Nobody tells that a copy has ended, or that the plugin takes a request now.
TEST(PipelineStations, IsToldUnlessItWaitsForACopyOrIsPutOff) {
  PipelinePair silent;
  silent.send->tell_changes([] {});
  EXPECT_FALSE(silent.send->is_told());

  PipelinePairOptions options;
  options.fake.tells = true;
  PipelinePair p(options);
  for (Pipeline* const end : {p.send.get(), p.recv.get()}) end->tell_changes([] {});
  p.unpacker.queries_needed = 3;
  p.fake.answer_not_yet(Call::kSend, 2);
  const TransferId sent = p.submit_send(0, 10), got = p.submit_recv(0, 10);
  bool was_put_off = false, has_copied = false;
  while (p.send->pending() + p.recv->pending() > 0) {
    p.progress();
    const bool copies = p.unpacker.in_flight() > 0;
    has_copied |= copies;
    EXPECT_EQ(p.recv->is_told(), !copies);
    if (p.send->pending() > 0 && p.send->in_flight() == 0) {
      was_put_off = true;
      EXPECT_FALSE(p.send->is_told());
    }
  }
  EXPECT_TRUE(was_put_off && has_copied);
  EXPECT_TRUE(p.send->is_told() && p.recv->is_told());
  expect_clean_success(p, sent, got, 0, 10);
  p.recv->cancel(Status(Code::kCancelled, "test", "enough"));
  EXPECT_FALSE(p.recv->is_told()) << "its end is not told";
}

TEST(PipelineStations, PollHasFourAnswers) {
  testing::allow_log("sent");
  PipelinePair p;
  EXPECT_EQ(p.recv->poll(TransferId{1}).state, TransferState::kUnknown);
  const TransferId sent = p.submit_send(0, 10), got = p.submit_recv(0, 10);
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kPending);
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kDone);
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kUnknown) << "an end is told once";
  EXPECT_EQ(p.recv->poll(TransferId{0}).state, TransferState::kUnknown);
  EXPECT_EQ(p.recv->poll(TransferId{~0ull}).state, TransferState::kUnknown);
  EXPECT_EQ(p.send->poll(sent).state, TransferState::kDone);
  const TransferId failing = p.submit_recv(0, 10);
  p.recv->cancel(Status(Code::kTimeout, "test", "enough"));
  p.recv->progress();
  const TransferAnswer answer = p.recv->poll(failing);
  EXPECT_EQ(answer.state, TransferState::kFailed);
  EXPECT_EQ(answer.status.detail(), "enough");
}

TEST(PipelineStations, SubmitRefusesWhatCannotBe) {
  PipelinePair p;
  const auto code = [&](const TransferSpec& spec) { return p.send->submit(spec).status().code(); };
  const RegisteredMemory& memory = p.send_memory;
  EXPECT_EQ(code({.memory = memory, .offset = 0, .bytes = memory.bytes + 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.memory = memory, .offset = memory.bytes + 1, .bytes = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.memory = memory, .offset = 1, .bytes = ~size_t{0}}), Code::kInvalidArgument) << "the sum wraps";
  EXPECT_EQ(code({.memory = memory, .bytes = 1, .tag = -1}), Code::kInvalidArgument);
  for (int i = 0; i < 8; ++i) p.submit_send(0, 1);
  EXPECT_EQ(code({.memory = memory, .bytes = 1}), Code::kExhausted);
}

TEST(PipelineStations, OptionsOutOfRangeAreRefused) {
  PipelinePair p;
  const auto code = [&](const PipelineOptions& options) {
    return Pipeline::create(Comm(p.fake, p.fake.make_wire().first), {}, p.clock, options).status().code();
  };
  EXPECT_EQ(code({.limits = {.window = kQueueDepth + 1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {.peer_gone_tests = 1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {}, .chunk_bytes = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {}, .chunk_bytes = kMaxRequestBytes + 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {}, .longest_chunk_bytes = kMaxRequestBytes + 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {}, .max_transfers = 0}), Code::kInvalidArgument);
}

/// Requests that both ends give the plugin before it moves any of them.
std::pair<uint64_t, uint64_t> most_in_flight(uint32_t depth, uint32_t chunk_bytes, MemoryType recv_type, uint32_t window = 0) {
  constexpr size_t kBytes = 64u << 20;
  PipelinePairOptions options;
  options.fake.queue_depth = depth;
  options.send.limits.window = options.recv.limits.window = window;
  options.send.chunk_bytes = options.recv.chunk_bytes = chunk_bytes;
  options.recv_type = recv_type;
  options.memory_bytes = kBytes;
  PipelinePair p(options);
  p.submit_recv(0, kBytes);
  p.recv->progress();
  p.submit_send(0, kBytes);
  p.send->progress();
  return {p.fake.calls(Call::kSend), p.recv->in_flight()};
}

TEST(PipelineStations, AWindowIsAsDeepAsThePluginWhileChunksAreShort) {
  using Windows = std::pair<uint64_t, uint64_t>;
  constexpr uint32_t kDeep = 128, kShort = 128 * 1024, kLong = 512 * 1024;
  constexpr auto kHost = MemoryType::kHost;
  EXPECT_EQ(most_in_flight(kQueueDepth, kShort, kHost), Windows(kQueueDepth - 4, kQueueDepth));
  EXPECT_EQ(most_in_flight(kDeep, kShort, kHost), Windows(kDeep, kDeep));
  EXPECT_EQ(most_in_flight(kDeep, kLong, kHost), Windows(64, 64)) << "32 MiB";
  EXPECT_EQ(most_in_flight(kDeep, 2 * 1024 * 1024, kHost), Windows(kQueueDepth, kQueueDepth));
  EXPECT_EQ(most_in_flight(kDeep, kShort, MemoryType::kCuda), Windows(kDeep, kQueueDepth)) << "there are no more lists";
  EXPECT_EQ(most_in_flight(kDeep, kShort, kHost, 24), Windows(24, 24)) << "the user's word";
}

TEST(PipelineStations, AReceiveOfCudaMemoryBoundsThoseBehindIt) {
  PipelinePairOptions options;
  options.fake.queue_depth = 64;
  options.recv.limits.window = 0;
  PipelinePair p(options);
  std::vector<std::byte> room(64 * options.recv.chunk_bytes);
  const RegisteredMemory host = p.recv->register_memory(room.data(), room.size(), MemoryType::kHost).value();
  ASSERT_OK(p.recv->submit({.memory = host, .bytes = 1}));
  p.submit_recv(0, 1);
  ASSERT_OK(p.recv->submit({.memory = host, .bytes = room.size()}));
  p.recv->progress();
  EXPECT_EQ(p.recv->in_flight(), kQueueDepth);
  p.submit_send(0, 1);
  p.submit_send(0, 1);
  for (int i = 0; i < 5; ++i) p.send->progress(), p.recv->progress();
  EXPECT_EQ(p.recv->in_flight(), 64u);
}

TEST(PipelineStations, Trap08_SendsMoveOnlyWhenTested) {
  PipelinePair p;
  const TransferId sent = p.submit_send(0, 4096), got = p.submit_recv(0, 4096);
  for (int i = 0; i < 50; ++i) p.recv->progress();
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kPending) << "the sender has not been driven";
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_GT(p.fake.calls(Call::kTestSend), 0u);
  expect_clean_success(p, sent, got, 0, 4096);
}

TEST(PipelineStations, Trap09_Trap10_OnlyTheOldestIsTestedAndOnlyUntilDone) {
  // The fake records every test of another request, and of one already reported.
  PipelinePairOptions options;
  options.fake.max_delay_tests = 5;
  PipelinePair p(options);
  p.unpacker.queries_needed = 3;
  expect_moves(p, 250000);
}

TEST(PipelineStations, Trap11_WindowsKeepToSixteenRequests) {
  PipelinePairOptions options;
  options.send.limits.window = kQueueDepth;
  PipelinePair p(options);
  p.unpacker.queries_needed = 20;
  const TransferId sent = p.submit_send(0, 250000), got = p.submit_recv(0, 250000);
  uint64_t most = 0;
  ASSERT_TRUE(p.drive([&] {
    most = std::max(most, p.recv->in_flight());
    return p.recv->pending() == 0 && p.send->pending() == 0;
  }));
  EXPECT_EQ(most, kQueueDepth);
  expect_clean_success(p, sent, got, 0, 250000);
}

TEST(PipelineStations, Trap17_TagsAreUniquePerChunkForPluginsThatMatchThem) {
  PipelinePair p;
  const TransferId sent = p.submit_send(0, 4 * 4096), got = p.submit_recv(0, 4 * 4096);
  const TransferId sent_next = p.submit_send(4 * 4096, 1), got_next = p.submit_recv(4 * 4096, 1);
  p.send->progress();
  EXPECT_EQ(p.fake.tags(), (std::vector<int>{42, 43, 44, 45, 10042}));
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 4 * 4096);
  expect_clean_success(p, sent_next, got_next, 4 * 4096, 1);
}

TEST(PipelineStations, Trap18_ASmallPoolIsEnoughBecauseEveryChunkIsGivenBack) {
  PipelinePairOptions options;
  options.fake.page_count = 2;
  PipelinePair p(options);
  expect_moves(p, 250000);
  EXPECT_EQ(p.fake.free_pages(), 2u);
}

TEST(PipelineStations, Trap20_PagesAreGivenBackOnlyAfterTheCopy) {
  // The unpacker copies at its 9th query, the fake overwrites pages when they are consumed.
  PipelinePair p;
  p.unpacker.queries_needed = 9;
  const TransferId sent = p.submit_send(0, 20000), got = p.submit_recv(0, 20000);
  ASSERT_TRUE(p.drive([&] { return p.unpacker.submitted() == 1; }));
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 0u);
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kPending);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 20000);
}

TEST(PipelineStations, Trap22_FragmentsInAnyOrderAndAtAnyAlignment) {
  PipelinePairOptions options;
  options.fake = {.page_bytes = 256, .page_count = 512, .shuffle_fragments = true, .ragged_fragments = true};
  PipelinePair p(options);
  expect_moves(p, 250001);
}

TEST(PipelineStations, HostMemoryArrivesInPlaceAndIsConsumedAllTheSame) {
  PipelinePairOptions options;
  options.recv_type = MemoryType::kHost;
  PipelinePair p(options);
  expect_moves(p, 50000);
  EXPECT_EQ(p.unpacker.submitted(), 0u);
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 13u);
}

TEST(PipelineStations, CloseWaitsForNobody) {
  PipelinePair p;
  p.submit_recv(0, 10);
  EXPECT_EQ(p.recv->close().code(), Code::kInvalidArgument);
  ASSERT_TRUE(p.send->close().is_ok());
  EXPECT_EQ(p.send->submit({.memory = p.send_memory, .bytes = 1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(p.send->register_memory(p.source.device(), 1, MemoryType::kHost).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx
