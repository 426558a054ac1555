// One comm per direction over the scripted plugin, under a manual clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/expect_log.h"
#include "tests/support/pipeline_fixture.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Call;
using testing::Pipeline;
using testing::PipelineOptions;

// What must hold after every transfer that went well.
void expect_clean_success(Pipeline& p, TransferId sent, TransferId got, size_t offset, size_t bytes, uint64_t seed = 1) {
  const TransferAnswer send = p.send->poll(sent);
  const TransferAnswer recv = p.recv->poll(got);
  EXPECT_EQ(send.state, TransferState::kDone) << send.status.to_string();
  EXPECT_EQ(recv.state, TransferState::kDone) << recv.status.to_string();
  EXPECT_EQ(recv.bytes_done, bytes);
  EXPECT_TRUE(verify_pattern(p.received(offset, bytes), seed).is_ok())
      << verify_pattern(p.received(offset, bytes), seed).to_string();
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
}

// What must hold once a connection has reported a failure: nobody can touch its memory any more.
void expect_let_go(Pipeline& p) {
  EXPECT_EQ(p.unpacker.in_flight(), 0u);
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
}

TEST(ConnectionPipeline, MovesTransfersOfEverySizeAroundTheChunk) {
  for (const size_t bytes : {0u, 1u, 4095u, 4096u, 4097u, 65536u, 200001u}) {
    Pipeline p;
    const TransferId sent = p.submit_send(0, bytes), got = p.submit_recv(0, bytes);
    ASSERT_TRUE(p.drive_to_end()) << bytes;
    expect_clean_success(p, sent, got, 0, bytes);
    EXPECT_EQ(p.target.host()[bytes], Pipeline::kUntouched);
    EXPECT_EQ(p.fake.calls(Call::kConsumed), ChunkPlan::make(bytes, 4096)->count()) << "every chunk exactly once";
    EXPECT_TRUE(p.send->close().is_ok());
    EXPECT_TRUE(p.recv->close().is_ok());
    EXPECT_EQ(p.fake.open_comms(), 0u);
    EXPECT_EQ(p.fake.registrations(), 0u);
  }
}

TEST(ConnectionPipeline, SeveralTransfersStayApart) {
  Pipeline p;
  std::vector<std::pair<TransferId, TransferId>> ids;
  for (size_t i = 0; i < 8; ++i) ids.emplace_back(p.submit_send(i * 8192, 5000 + i, i), p.submit_recv(i * 8192, 5000 + i));
  ASSERT_TRUE(p.drive_to_end());
  for (size_t i = 8; i-- > 0;) expect_clean_success(p, ids[i].first, ids[i].second, i * 8192, 5000 + i, i);
}

TEST(ConnectionPipeline, PollHasFourAnswers) {
  testing::allow_log("sent");
  Pipeline p;
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

TEST(ConnectionPipeline, SubmitRefusesWhatCannotBe) {
  Pipeline p;
  const auto code = [&](const TransferSpec& spec) { return p.send->submit(spec).status().code(); };
  const RegisteredMemory& memory = p.send_memory;
  EXPECT_EQ(code({.memory = memory, .offset = 0, .bytes = memory.bytes + 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.memory = memory, .offset = memory.bytes + 1, .bytes = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.memory = memory, .offset = 1, .bytes = ~size_t{0}}), Code::kInvalidArgument) << "the sum wraps";
  EXPECT_EQ(code({.memory = memory, .bytes = 8192, .tag = 2147483647}), Code::kInvalidArgument) << "the second tag does not fit";
  EXPECT_EQ(code({.memory = memory, .bytes = 1, .tag = -1}), Code::kInvalidArgument);
  for (int i = 0; i < 8; ++i) p.submit_send(0, 1);
  EXPECT_EQ(code({.memory = memory, .bytes = 1}), Code::kExhausted);
}

TEST(ConnectionPipeline, OptionsOutOfRangeAreRefused) {
  Pipeline p;
  const auto code = [&](const ConnectionOptions& options) {
    return Connection::create(Comm(p.fake, p.fake.make_wire().first), {}, p.clock, options).status().code();
  };
  EXPECT_EQ(code({.limits = {.window = 0}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {.window = kQueueDepth + 1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {.peer_gone_tests = 1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {}, .chunk_bytes = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {}, .chunk_bytes = kMaxRequestBytes + 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.limits = {}, .max_transfers = 0}), Code::kInvalidArgument);
}

TEST(ConnectionPipeline, NullRequestsAreTriedAgain) {
  Pipeline p;
  p.fake.answer_not_yet(Call::kSend, 7);
  p.fake.answer_not_yet(Call::kRecv, 5);
  const TransferId sent = p.submit_send(0, 50000), got = p.submit_recv(0, 50000);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 50000);
}

TEST(ConnectionPipeline, Trap08_SendsMoveOnlyWhenTested) {
  Pipeline p;
  const TransferId sent = p.submit_send(0, 4096), got = p.submit_recv(0, 4096);
  for (int i = 0; i < 50; ++i) p.recv->progress();
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kPending) << "the sender has not been driven";
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_GT(p.fake.calls(Call::kTestSend), 0u);
  expect_clean_success(p, sent, got, 0, 4096);
}

TEST(ConnectionPipeline, Trap09_Trap10_OnlyTheOldestIsTestedAndOnlyUntilDone) {
  // The fake writes down every test of another request, and of one that has been reported.
  PipelineOptions options;
  options.fake.max_delay_tests = 5;
  Pipeline p(options);
  p.unpacker.queries_needed = 3;
  const TransferId sent = p.submit_send(0, 250000), got = p.submit_recv(0, 250000);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 250000);
}

TEST(ConnectionPipeline, Trap11_WindowsKeepToSixteenRequests) {
  PipelineOptions options;
  options.send.limits.window = kQueueDepth;
  Pipeline p(options);
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

TEST(ConnectionPipeline, Trap12_PeerGoneWithTheLastMessageIsNotBelieved) {
  // The sender ends as soon as its sends are done; the receiver sees the end of the stream together with the last message.
  Pipeline p;
  const TransferId sent = p.submit_send(0, 40000);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }));
  EXPECT_EQ(p.send->poll(sent).state, TransferState::kDone);
  ASSERT_TRUE(p.send->close().is_ok());
  const TransferId got = p.submit_recv(0, 40000);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kDone);
  EXPECT_TRUE(verify_pattern(p.received(0, 40000), 1).is_ok());
}

TEST(ConnectionPipeline, Trap12_PeerGoneIsBelievedAfterItsGrace) {
  testing::allow_log("recv channel gives up: TCPX_E_PEER_GONE");
  Pipeline p;
  p.fake.say_peer_gone(1000000);
  const TransferId got = p.submit_recv(0, 100);
  const TimePoint start = p.clock.now();
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  EXPECT_GE(p.clock.now() - start, milliseconds(100));
  EXPECT_LE(p.clock.now() - start, milliseconds(110));
  EXPECT_EQ(p.fake.calls(Call::kTestRecv), 5u) << "spread over the grace, not as often as progress is called";
  EXPECT_TRUE(testing::logged("recv channel gives up: TCPX_E_PEER_GONE"));
  EXPECT_EQ(p.recv->poll(got).status.code(), Code::kPeerGone);
  EXPECT_EQ(p.recv->submit({.memory = p.recv_memory, .bytes = 1}).status().code(), Code::kPeerGone) << "the first error sticks";
  expect_let_go(p);
}

TEST(ConnectionPipeline, Trap12_ASlowCallerTestsOftenEnoughAllTheSame) {
  // One call of progress per second: the grace is over at the second, but four answers are not enough to give up.
  Pipeline p;
  p.fake.say_peer_gone(4);
  const TransferId sent = p.submit_send(0, 100), got = p.submit_recv(0, 100);
  for (int i = 0; i < 14; ++i) {
    p.recv->progress();
    p.send->progress();
    p.clock.advance(seconds(1));
  }
  expect_clean_success(p, sent, got, 0, 100);
}

TEST(ConnectionPipeline, Trap12_AFinishedRequestStartsTheGraceAnew) {
  Pipeline p;
  const TransferId sent = p.submit_send(0, 2 * 4096), got = p.submit_recv(0, 2 * 4096);
  const auto one_second = [&] {
    p.send->progress();
    p.recv->progress();
    p.clock.advance(seconds(1));
  };
  for (uint64_t chunks = 0; chunks < 2; ++chunks) {
    p.fake.say_peer_gone(4);
    for (int i = 0; i < 25 && p.fake.calls(Call::kConsumed) == chunks; ++i) one_second();
  }
  expect_clean_success(p, sent, got, 0, 2 * 4096);
}

TEST(ConnectionPipeline, Trap13_NothingIsPostedBeyondWhatWasSubmitted) {
  Pipeline p;
  const TransferId sent = p.submit_send(0, 3 * 4096), got = p.submit_recv(0, 3 * 4096);
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_EQ(p.fake.calls(Call::kRecv), 3u);
  expect_clean_success(p, sent, got, 0, 3 * 4096);
}

TEST(ConnectionPipeline, Trap14_AStallEndsAtItsDeadlineWithAFlightRecord) {
  testing::allow_log("nothing advanced for 30000 ms");
  Pipeline p;
  const TransferId got = p.submit_recv(0, 10000);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }, 40000));
  const TransferAnswer answer = p.recv->poll(got);
  EXPECT_EQ(answer.state, TransferState::kFailed);
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_TRUE(testing::logged("in flight: 3 recv chunks"));
  EXPECT_TRUE(testing::logged("chunk 2 of transfer 1: posted, 1808 bytes, 30000 ms"));
  expect_let_go(p);
}

TEST(ConnectionPipeline, APluginThatTakesNothingIsAStallToo) {
  testing::allow_log("nothing advanced for");
  Pipeline p;
  p.fake.answer_not_yet(Call::kSend, 1000000);
  const TransferId sent = p.submit_send(0, 1);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }, 40000));
  EXPECT_EQ(p.send->poll(sent).status.code(), Code::kTimeout);
  EXPECT_TRUE(testing::logged("the plugin takes no more"));
}

TEST(ConnectionPipeline, IdleTimeIsNoStall) {
  Pipeline p;
  p.clock.advance(seconds(100));
  p.recv->progress();
  p.clock.advance(seconds(100));
  const TransferId sent = p.submit_send(0, 10), got = p.submit_recv(0, 10);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 10);
}

TEST(ConnectionPipeline, Trap16_AMessageLargerThanPostedIsRefusedBeforeAByteMoves) {
  testing::allow_log("the sender sent 101 bytes, 100 were posted");
  Pipeline p;
  p.submit_send(0, 101);
  const TransferId got = p.submit_recv(0, 100);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  EXPECT_EQ(p.recv->poll(got).status.code(), Code::kProtocol);
  EXPECT_TRUE(std::all_of(p.target.host(), p.target.host() + 4096, [](std::byte b) { return b == Pipeline::kUntouched; }));
  EXPECT_EQ(p.unpacker.submitted(), 0u);
  expect_let_go(p);
}

TEST(ConnectionPipeline, AShortMessageIsAMismatch) {
  testing::allow_log("the sender sent 99 bytes, 100 were posted");
  Pipeline p;
  p.submit_send(0, 99);
  const TransferId got = p.submit_recv(0, 100);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  EXPECT_EQ(p.recv->poll(got).status.code(), Code::kMismatch);
  EXPECT_EQ(p.unpacker.submitted(), 0u);
}

TEST(ConnectionPipeline, Trap17_TagsAreUniquePerChunkForPluginsThatMatchThem) {
  Pipeline p;
  const TransferId sent = p.submit_send(0, 4 * 4096), got = p.submit_recv(0, 4 * 4096);
  p.send->progress();
  EXPECT_EQ(p.fake.tags(), (std::vector<int>{42, 43, 44, 45}));
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 4 * 4096);
}

TEST(ConnectionPipeline, Trap18_ASmallPoolIsEnoughBecauseEveryChunkIsGivenBack) {
  PipelineOptions options;
  options.fake.page_count = 2;
  Pipeline p(options);
  const TransferId sent = p.submit_send(0, 250000), got = p.submit_recv(0, 250000);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 250000);
  EXPECT_EQ(p.fake.free_pages(), 2u);
}

TEST(ConnectionPipeline, Trap19_EmptyTransfersAreConsumedOnceToo) {
  Pipeline p;
  for (int i = 0; i < 5; ++i) {
    const TransferId sent = p.submit_send(0, 0), got = p.submit_recv(0, 0);
    ASSERT_TRUE(p.drive_to_end());
    expect_clean_success(p, sent, got, 0, 0);
    EXPECT_EQ(p.fake.calls(Call::kConsumed), static_cast<uint64_t>(i + 1));
  }
  EXPECT_EQ(p.unpacker.submitted(), 0u) << "nothing to copy";
}

TEST(ConnectionPipeline, Trap20_PagesAreGivenBackOnlyAfterTheCopy) {
  // The unpacker copies at its 9th query, the fake overwrites pages when they are consumed.
  Pipeline p;
  p.unpacker.queries_needed = 9;
  const TransferId sent = p.submit_send(0, 20000), got = p.submit_recv(0, 20000);
  ASSERT_TRUE(p.drive([&] { return p.unpacker.submitted() == 5; }));
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 0u);
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kPending);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 20000);
}

TEST(ConnectionPipeline, Trap22_FragmentsInAnyOrderAndAtAnyAlignment) {
  PipelineOptions options;
  options.fake = {.page_bytes = 256, .page_count = 512, .shuffle_fragments = true, .ragged_fragments = true};
  Pipeline p(options);
  const TransferId sent = p.submit_send(0, 250001), got = p.submit_recv(0, 250001);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 250001);
}

TEST(ConnectionPipeline, Trap24_TheFirstErrorOfRegistrationIsReported) {
  Pipeline p;
  EXPECT_EQ(p.recv->register_memory(p.target.device() + 1, 100, MemoryType::kCuda).status().native(), 3);
  EXPECT_TRUE(p.recv->status().is_ok()) << "the connection itself is well";
}

TEST(ConnectionPipeline, MaliciousListsAreRefusedBeforeAByteMoves) {
  using Rewrite = void (*)(ReceivedMessage&, std::vector<Fragment>&);
  const std::pair<const char*, Rewrite> cases[] = {
      {"beyond the pool", [](ReceivedMessage&, std::vector<Fragment>& list) { list[0].src_off = 0xfffffff0; }},
      {"beyond the message", [](ReceivedMessage&, std::vector<Fragment>& list) { list[0].dst_off = ~uint64_t{0} - 100; }},
      {"overlap", [](ReceivedMessage&, std::vector<Fragment>& list) { list[1].dst_off -= 1; }},
      {"gap", [](ReceivedMessage&, std::vector<Fragment>& list) { list.pop_back(); }},
      {"empty fragment",
       [](ReceivedMessage&, std::vector<Fragment>& list) {
         list.push_back({0, 0, 0});
       }},
      {"no list", [](ReceivedMessage&, std::vector<Fragment>& list) { list.clear(); }},
      {"too many", [](ReceivedMessage& m, std::vector<Fragment>&) { m.fragment_count = kMaxFragments + 1; }},
      {"absurdly many", [](ReceivedMessage& m, std::vector<Fragment>&) { m.fragment_count = ~uint64_t{0} / 16; }},
  };
  testing::allow_log("scatter list of chunk 0 refused");
  for (const auto& [name, rewrite] : cases) {
    PipelineOptions options;
    options.fake = {.page_bytes = 1024, .page_count = 64};
    Pipeline p(options);
    p.fake.rewrite = [change = rewrite](uint64_t, ReceivedMessage& m, std::vector<Fragment>& list) { change(m, list); };
    p.submit_send(0, 4096);
    const TransferId got = p.submit_recv(0, 4096);
    ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; })) << name;
    EXPECT_EQ(p.recv->poll(got).status.code(), Code::kProtocol) << name;
    EXPECT_EQ(p.unpacker.submitted(), 0u) << name;
    EXPECT_EQ(p.target.host()[0], Pipeline::kUntouched) << name;
    expect_let_go(p);
  }
}

TEST(ConnectionPipeline, HostMemoryArrivesInPlaceAndIsConsumedAllTheSame) {
  PipelineOptions options;
  options.recv_type = MemoryType::kHost;
  Pipeline p(options);
  const TransferId sent = p.submit_send(0, 50000), got = p.submit_recv(0, 50000);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 50000);
  EXPECT_EQ(p.unpacker.submitted(), 0u);
  EXPECT_EQ(p.fake.calls(Call::kConsumed), 13u);
}

TEST(ConnectionPipeline, AFullUnpackerIsTriedAgain) {
  Pipeline p;
  p.unpacker.max_in_flight = 1;
  p.unpacker.queries_needed = 4;
  const TransferId sent = p.submit_send(0, 100000), got = p.submit_recv(0, 100000);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 100000);
}

TEST(ConnectionPipeline, TheTapSeesEveryMessageWhileItsPagesAreThere) {
  struct Tap : ReceiveTap {
    void arrived(const ChunkWork& work, const ReceivedMessage& message, const DescriptorBlock& block) override {
      chunks.push_back(work.chunk.index);
      const Fragment& first = block.fragments().front();
      intact +=
          message.bytes == work.chunk.bytes &&
                  verify_pattern({block.target().pool + first.src_off, first.len}, 1, work.chunk.offset + first.dst_off).is_ok()
              ? 1
              : 0;
    }
    std::vector<uint64_t> chunks;
    int intact = 0;
  } tap;
  PipelineOptions options;
  options.tap = &tap;
  Pipeline p(options);
  p.unpacker.queries_needed = 2;
  const TransferId sent = p.submit_send(0, 3 * 4096), got = p.submit_recv(0, 3 * 4096);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 3 * 4096);
  EXPECT_EQ(tap.chunks, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(tap.intact, 3);
}

TEST(ConnectionPipeline, FailureAtEveryStepDrains) {
  testing::allow_log("channel gives up");
  for (const Call call : {Call::kSend, Call::kRecv, Call::kTestSend, Call::kTestRecv, Call::kReceived, Call::kConsumed}) {
    for (uint64_t n = 1; n <= 12; ++n) {
      Pipeline p;
      p.unpacker.queries_needed = 5;
      p.fake.fail_call(call, n, testing::plugin_refused("scripted", "no"));
      const TransferId sent = p.submit_send(0, 50000), got = p.submit_recv(0, 50000);
      const bool sender_fails = call == Call::kSend || call == Call::kTestSend;
      ASSERT_TRUE(p.drive([&] {
        Connection& failing = sender_fails ? *p.send : *p.recv;
        EXPECT_TRUE(failing.pending() > 0 || sender_fails || p.unpacker.in_flight() == 0)
            << "reported while the unpacker was at work";
        return failing.pending() == 0;
      })) << "call "
          << static_cast<int>(call) << " number " << n;
      const TransferAnswer answer = sender_fails ? p.send->poll(sent) : p.recv->poll(got);
      EXPECT_EQ(answer.state, TransferState::kFailed);
      EXPECT_EQ(answer.status.native(), 3);
      EXPECT_EQ(p.fake.open_comms(), 1u) << "the failed comm is closed, the other not";
      EXPECT_EQ(p.fake.registrations(), 1u);
      EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
      ASSERT_TRUE(p.drive_to_end()) << "the other end fails too, because its peer is gone";
    }
  }
}

TEST(ConnectionPipeline, UnpackerErrorsFailTheTransfer) {
  for (uint32_t n = 1; n <= 5; ++n) {
    for (const bool at_submit : {true, false}) {
      Pipeline p;
      (at_submit ? p.unpacker.fail_submit_at : p.unpacker.fail_query_at) = n;
      p.submit_send(0, 50000);
      const TransferId got = p.submit_recv(0, 50000);
      ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
      EXPECT_EQ(p.recv->poll(got).status.code(), Code::kCuda);
      EXPECT_LT(p.fake.calls(Call::kConsumed), n) << "nothing is given back after the error";
      expect_let_go(p);
    }
  }
}

TEST(ConnectionPipeline, AnUnpackThatNeverEndsIsWaitedForWithinABound) {
  testing::allow_log("unpack did not end within the drain limit");
  Pipeline p;
  p.unpacker.queries_needed = 1000000;
  p.submit_send(0, 100);
  const TransferId got = p.submit_recv(0, 100);
  ASSERT_TRUE(p.drive([&] { return p.unpacker.submitted() == 1; }));
  p.recv->cancel(Status(Code::kTimeout, "test", "enough"));
  const TimePoint start = p.clock.now();
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }, 10000));
  EXPECT_GE(p.clock.now() - start, seconds(5));
  const TransferAnswer answer = p.recv->poll(got);
  EXPECT_NE(answer.status.detail().find("may still be running"), std::string::npos) << answer.status.to_string();
}

TEST(ConnectionPipeline, ADestroyedConnectionDrains) {
  Pipeline p;
  p.unpacker.queries_needed = 50;
  p.submit_send(0, 20000);
  p.submit_recv(0, 20000);
  ASSERT_TRUE(p.drive([&] { return p.unpacker.in_flight() == 5; }));
  p.recv.reset();
  EXPECT_EQ(p.unpacker.in_flight(), 0u);
  EXPECT_EQ(p.fake.open_comms(), 1u);
}

TEST(ConnectionPipeline, PeerDeathEndsASendAtOnce) {
  testing::allow_log("channel gives up");
  Pipeline p;
  p.fake.kill_peer_of(p.raw_send);
  const TransferId sent = p.submit_send(0, 100);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }, 5));
  EXPECT_EQ(p.send->poll(sent).status.code(), Code::kPeerGone);
}

TEST(ConnectionPipeline, PeerDeathEndsAReceiveWithinASecond) {
  testing::allow_log("channel gives up");
  Pipeline p;
  p.fake.kill_peer_of(p.raw_recv);
  const TransferId got = p.submit_recv(0, 100000);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }, 1000));
  EXPECT_EQ(p.recv->poll(got).status.code(), Code::kPeerGone);
  expect_let_go(p);
}

TEST(ConnectionPipeline, CloseWaitsForNobody) {
  Pipeline p;
  p.submit_recv(0, 10);
  EXPECT_EQ(p.recv->close().code(), Code::kInvalidArgument);
  ASSERT_TRUE(p.send->close().is_ok());
  EXPECT_EQ(p.send->submit({.memory = p.send_memory, .bytes = 1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(p.send->register_memory(p.source.device(), 1, MemoryType::kHost).status().code(), Code::kInvalidArgument);
}

TEST(ConnectionPipeline, CancelWithoutAReasonIsABug) {
  // A connection that has failed with "ok" would be closed like a healthy one, under copies that still run.
  const auto cancel_with_ok = [] {
    set_log_sink(nullptr, nullptr);
    Pipeline p;
    p.recv->cancel(Status::ok());
  };
  EXPECT_DEATH(cancel_with_ok(), "a channel fails for a reason");
}

}  // namespace
}  // namespace tcpx
