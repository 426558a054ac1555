// Stalls, dead peers, lists that lie, and errors at every step, over the scripted plugin under a manual clock: how a pipeline
// fails, and events that it must not mistake for a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Call;
using testing::expect_clean_success;
using testing::expect_let_go;
using testing::PipelinePair;
using testing::PipelinePairOptions;

TEST(PipelineFailures, Trap12_PeerGoneWithTheLastMessageIsNotBelieved) {
  // The sender ends as soon as its sends are done; the receiver sees the end of the stream together with the last message.
  PipelinePair p;
  const TransferId sent = p.submit_send(0, 40000);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }));
  EXPECT_EQ(p.send->poll(sent).state, TransferState::kDone);
  ASSERT_TRUE(p.send->close().is_ok());
  const TransferId got = p.submit_recv(0, 40000);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kDone);
  EXPECT_TRUE(verify_pattern(p.received(0, 40000), 1).is_ok());
}

TEST(PipelineFailures, Trap12_PeerGoneIsBelievedAfterItsGrace) {
  testing::allow_log("recv channel gives up: TCPX_E_PEER_GONE");
  PipelinePair p;
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

TEST(PipelineFailures, Trap12_ASlowCallerTestsOftenEnoughAllTheSame) {
  // One call of progress per second: the grace is over at the second, but four answers are not enough to give up.
  PipelinePair p;
  p.fake.say_peer_gone(4);
  const TransferId sent = p.submit_send(0, 100), got = p.submit_recv(0, 100);
  for (int i = 0; i < 14; ++i) {
    p.recv->progress();
    p.send->progress();
    p.clock.advance(seconds(1));
  }
  expect_clean_success(p, sent, got, 0, 100);
}

TEST(PipelineFailures, Trap12_AFinishedRequestStartsTheGraceAnew) {
  PipelinePair p;
  const TransferId sent = p.submit_send(0, 2 * 4096), got = p.submit_recv(0, 2 * 4096);
  const auto one_second = [&] {
    p.progress();
    p.clock.advance(seconds(1));
  };
  for (uint64_t chunks = 0; chunks < 2; ++chunks) {
    p.fake.say_peer_gone(4);
    for (int i = 0; i < 25 && p.fake.calls(Call::kConsumed) == chunks; ++i) one_second();
  }
  expect_clean_success(p, sent, got, 0, 2 * 4096);
}

TEST(PipelineFailures, Trap14_AStallEndsAtItsDeadlineWithAFlightRecord) {
  testing::allow_log("nothing advanced for 30000 ms");
  PipelinePair p;
  const TransferId got = p.submit_recv(0, 10000);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }, 40000));
  const TransferAnswer answer = p.recv->poll(got);
  EXPECT_EQ(answer.state, TransferState::kFailed);
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_TRUE(testing::logged("in flight: 3 recv chunks"));
  EXPECT_TRUE(testing::logged("chunk 2 of transfer 1: posted, 1808 bytes, 30000 ms"));
  expect_let_go(p);
}

TEST(PipelineFailures, APluginThatTakesNothingIsAStallToo) {
  testing::allow_log("nothing advanced for");
  PipelinePair p;
  p.fake.answer_not_yet(Call::kSend, 1000000);
  const TransferId sent = p.submit_send(0, 1);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }, 40000));
  EXPECT_EQ(p.send->poll(sent).status.code(), Code::kTimeout);
  EXPECT_TRUE(testing::logged("the plugin takes no more"));
}

TEST(PipelineFailures, IdleTimeIsNoStall) {
  PipelinePair p;
  p.clock.advance(seconds(100));
  p.recv->progress();
  p.clock.advance(seconds(100));
  expect_moves(p, 10);
}

TEST(PipelineFailures, Trap16_AMessageOfAnotherSizeIsRefusedBeforeAByteMoves) {
  const std::pair<size_t, Code> sizes[] = {{101, Code::kProtocol}, {99, Code::kMismatch}};
  for (const auto& [bytes, code] : sizes) {
    testing::allow_log("the sender sent " + std::to_string(bytes) + " bytes, 100 were posted");
    PipelinePair p;
    p.submit_send(0, bytes);
    const TransferId got = p.submit_recv(0, 100);
    ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
    EXPECT_EQ(p.recv->poll(got).status.code(), code);
    EXPECT_TRUE(std::all_of(p.target.host(), p.target.host() + 4096, [](std::byte b) { return b == PipelinePair::kUntouched; }));
    EXPECT_EQ(p.unpacker.submitted(), 0u);
    expect_let_go(p);
  }
}

TEST(PipelineFailures, MaliciousListsAreRefusedBeforeAByteMoves) {
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
    PipelinePairOptions options;
    options.fake = {.page_bytes = 1024, .page_count = 64};
    PipelinePair p(options);
    p.fake.rewrite = [change = rewrite](uint64_t, ReceivedMessage& m, std::vector<Fragment>& list) { change(m, list); };
    p.submit_send(0, 4096);
    const TransferId got = p.submit_recv(0, 4096);
    ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; })) << name;
    EXPECT_EQ(p.recv->poll(got).status.code(), Code::kProtocol) << name;
    EXPECT_EQ(p.unpacker.submitted(), 0u) << name;
    EXPECT_EQ(p.target.host()[0], PipelinePair::kUntouched) << name;
    expect_let_go(p);
  }
}

TEST(PipelineFailures, FailureAtEveryStepDrains) {
  testing::allow_log("channel gives up");
  for (const Call call : {Call::kSend, Call::kRecv, Call::kTestSend, Call::kTestRecv, Call::kReceived, Call::kConsumed}) {
    for (uint64_t n = 1; n <= 12; ++n) {
      PipelinePair p;
      p.unpacker.queries_needed = 5;
      p.fake.fail_call(call, n, testing::plugin_refused("scripted", "no"));
      const TransferId sent = p.submit_send(0, 50000), got = p.submit_recv(0, 50000);
      const bool sender_fails = call == Call::kSend || call == Call::kTestSend;
      ASSERT_TRUE(p.drive([&] {
        Pipeline& failing = sender_fails ? *p.send : *p.recv;
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

TEST(PipelineFailures, UnpackerErrorsFailTheTransfer) {
  for (uint32_t n = 1; n <= 5; ++n) {
    for (const bool at_submit : {true, false}) {
      PipelinePairOptions options;
      options.send.limits.window = 1;  // every message is a batch of its own, so that the n-th call of each kind exists
      PipelinePair p(options);
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

TEST(PipelineFailures, AnUnpackThatNeverEndsIsWaitedForWithinABound) {
  testing::allow_log("unpack did not end within the drain limit");
  PipelinePair p;
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

TEST(PipelineFailures, A7_APluginThatDoesNotReturnFromClosingIsTold) {
  PipelinePair p;
  p.fake.fail_call(Call::kClose, 1, Status(Code::kTimeout, "closeRecv", "a thread is left behind"));
  const TransferId got = p.submit_recv(0, 100);
  p.recv->cancel(Status(Code::kCancelled, "test", "enough"));
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  const TransferAnswer answer = p.recv->poll(got);
  EXPECT_EQ(answer.status.code(), Code::kCancelled);
  EXPECT_NE(answer.status.detail().find("the plugin or copies of received data may still be running"), std::string::npos)
      << answer.status.to_string();
}

TEST(PipelineFailures, ADestroyedConnectionDrains) {
  PipelinePair p;
  p.unpacker.queries_needed = 50;
  p.submit_send(0, 20000);
  p.submit_recv(0, 20000);
  ASSERT_TRUE(p.drive([&] { return p.unpacker.in_flight() == 1; }));
  p.recv.reset();
  EXPECT_EQ(p.unpacker.in_flight(), 0u);
  EXPECT_EQ(p.fake.open_comms(), 1u);
}

TEST(PipelineFailures, PeerDeathEndsASendAtOnce) {
  testing::allow_log("channel gives up");
  PipelinePair p;
  p.fake.kill_peer_of(p.raw_send);
  const TransferId sent = p.submit_send(0, 100);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }, 5));
  EXPECT_EQ(p.send->poll(sent).status.code(), Code::kPeerGone);
}

TEST(PipelineFailures, PeerDeathEndsAReceiveWithinASecond) {
  testing::allow_log("channel gives up");
  PipelinePair p;
  p.fake.kill_peer_of(p.raw_recv);
  const TransferId got = p.submit_recv(0, 100000);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }, 1000));
  EXPECT_EQ(p.recv->poll(got).status.code(), Code::kPeerGone);
  expect_let_go(p);
}

TEST(PipelineFailures, CancelWithoutAReasonIsABug) {
  // A pipeline that has failed with "ok" would be closed like a healthy one, while copies still run.
  const auto cancel_with_ok = [] {
    set_log_sink(nullptr, nullptr);
    PipelinePair p;
    p.recv->cancel(Status::ok());
  };
  EXPECT_DEATH(cancel_with_ok(), "a channel fails for a reason");
}

}  // namespace
}  // namespace tcpx
