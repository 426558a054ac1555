// Ends of a link and of its operations: nothing is said to be done that is not, nobody is told of what failed, and a link that is
// closed lets end what has begun and no longer than it may.
#include <sys/socket.h>

#include "tests/support/link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkEnds : public LinkTest {
 protected:
  /// The peer's write, announced, and let go by the link.
  void begin_write_of_peer(std::optional<NotifyMsg> notify = {}) {
    ask(FrameType::kWrite, 5, std::move(notify));
    step();
    ASSERT_TRUE(hear(FrameType::kGo).has_value());
  }
  /// A receive that has met a long send of the peer, which has not come yet.
  OperationId begin_receive(std::optional<NotifyMsg> notify = {}, Duration timeout = std::chrono::seconds(30)) {
    const OperationId received = start(OperationKind::kRecv, {.ranges = one(host(0, kLong)), .timeout = timeout});
    say_offer(6, receives_ - 1, std::move(notify));
    step();
    EXPECT_TRUE(hear(FrameType::kGo).has_value());
    return received;
  }
  /// The peer's half moves what was announced.
  void send_from_peer() {
    const RegisteredMemory memory = peer_send_->register_memory(peers_.data(), peers_.size(), MemoryType::kHost).value();
    ASSERT_TRUE(peer_send_->submit({.memory = memory, .bytes = kLong}).is_ok());
  }
  /// So many milliseconds pass, a hundred at a time.
  void pass(int ms) {
    for (; ms > 0; ms -= 100) {
      clock_.advance(std::chrono::milliseconds(99));
      step();
    }
  }
  static NotifyMsg message() { return {.name = "layer", .msg = "is there", .conn = {}}; }
};

// It would be lost if the process ended now.
TEST_F(LinkEnds, AShortSendIsPendingUntilTheKernelHasIt) {
  const int few = 4096;
  ASSERT_EQ(::setsockopt(link_fd_, SOL_SOCKET, SO_SNDBUF, &few, sizeof few), 0);
  for (int i = 0; i < 100; ++i) (void)write(host(0, kShort));
  const OperationId sent = send(host(0, 8));
  steps(50, false);
  EXPECT_TRUE(pending(sent)) << "the peer reads nothing, and the socket is full";
  steps(500);
  EXPECT_TRUE(end_of(sent).is_ok());
  EXPECT_TRUE(hear(FrameType::kSendData).has_value());
}

TEST_F(LinkEnds, AShortSendThatTheKernelRefusesIsNotDone) {
  ASSERT_EQ(::shutdown(peer_->fd(), SHUT_RD), 0);  // the link can still read, so only its sending fails
  const OperationId sent = send(host(0, 8));
  steps(3);
  EXPECT_EQ(end_of(sent).code(), Code::kPeerGone);
}

// Else the thread that drives it would never rest.
TEST_F(LinkEnds, AnIdleLinkDoesNotAdvance) {
  const OperationId sent = send(host(0, 8));
  steps(3);
  EXPECT_TRUE(end_of(sent).is_ok());
  for (int i = 0; i < 100; ++i) {
    clock_.advance(std::chrono::milliseconds(1));
    ASSERT_FALSE(link_->progress(false));
  }
}

TEST_F(LinkEnds, APeerThatCouldNotSetUpItsEndSaysWhy) {
  const OperationId sent = send(host(0, kLong));
  const std::string why = "set up link: no room after all";
  say_raw(make_header(FrameType::kFinish, 0, static_cast<uint64_t>(Code::kExhausted)), std::as_bytes(std::span(why)));
  steps(3);
  EXPECT_EQ(end_of(sent).to_string(), "TCPX_E_EXHAUSTED: peer reported: set up link: no room after all");
}

TEST_F(LinkEnds, NothingOfTheSetUpComesAfterIt) {
  for (const FrameType type :
       {FrameType::kHello, FrameType::kParameters, FrameType::kHandles, FrameType::kBarrier, FrameType::kFinish}) {
    SetUp();
    const OperationId sent = send(host(0, kLong));
    say(type);
    steps(3);
    EXPECT_EQ(end_of(sent).code(), Code::kProtocol) << name_of(type);
  }
}

TEST_F(LinkEnds, AClosedLinkWaitsForThePeersBye) {
  link_->close();
  steps(20);
  EXPECT_TRUE(hear(FrameType::kBye).has_value());
  EXPECT_FALSE(link_->closed());
  say(FrameType::kBye);
  steps(2);
  EXPECT_TRUE(link_->closed());
}

TEST_F(LinkEnds, AClosedLinkWaitsForASilentPeerNoLongerThanItsFarewell) {
  link_->close();
  pass(1900);
  EXPECT_FALSE(link_->closed());
  pass(200);
  EXPECT_TRUE(link_->closed());
}

TEST_F(LinkEnds, AClosedLinkLetsThePeerAnswerWhatItWasOffered) {
  const OperationId sent = send(host(0, kLong));
  step();
  ASSERT_TRUE(hear(FrameType::kSend).has_value());
  link_->close();
  say(FrameType::kBye);
  steps(5);
  EXPECT_TRUE(hear(FrameType::kCancel).has_value());
  EXPECT_FALSE(link_->closed());
  EXPECT_TRUE(pending(sent)) << "the peer may have said \"go\"";
  say_done(sent, Code::kCancelled);
  steps(2);
  EXPECT_EQ(end_of(sent).code(), Code::kCancelled);
  EXPECT_TRUE(link_->closed());
}

TEST_F(LinkEnds, AClosedLinkLetsAWriteOfThePeerEnd) {
  begin_write_of_peer();
  link_->close();
  say(FrameType::kBye);
  steps(5);
  EXPECT_FALSE(link_->closed());
  send_from_peer();
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  const auto answer = hear(FrameType::kDone);
  ASSERT_TRUE(answer.has_value()) << "it was in place, and the peer was not told";
  EXPECT_EQ(answer->value, 0u);
  EXPECT_TRUE(has_peers(host_, kLong));
}

TEST_F(LinkEnds, APeerThatClosesIsWaitedForUntilItsWriteHasEnded) {
  begin_write_of_peer();
  say(FrameType::kBye);
  steps(5);
  EXPECT_TRUE(alive());
  send_from_peer();
  EXPECT_TRUE(drive([&] { return !alive(); }));
  EXPECT_TRUE(hear(FrameType::kDone).has_value());
  EXPECT_EQ(link_->status().code(), Code::kPeerGone);
}

TEST_F(LinkEnds, ANotificationComesBehindItsReceive) {
  const OperationId received = begin_receive(message());
  EXPECT_EQ(inbox_.size(), 0u);
  send_from_peer();
  EXPECT_TRUE(drive([&] { return !pending(received); }));
  EXPECT_TRUE(end_of(received).is_ok());
  EXPECT_EQ(inbox_.size(), 1u);
}

TEST_F(LinkEnds, NoNotificationForAReceiveThatFailed) {
  const OperationId received = begin_receive(message());
  link_->fail(Status(Code::kPeerGone, "test", "gone"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(received).code(), Code::kPeerGone);
  EXPECT_EQ(inbox_.size(), 0u) << "delivered with nothing in place";
}

TEST_F(LinkEnds, NoNotificationForAWriteThatFailed) {
  begin_write_of_peer(message());
  link_->fail(Status(Code::kPeerGone, "test", "gone"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(inbox_.size(), 0u) << "delivered with nothing in place";
}

TEST_F(LinkEnds, NoNotificationForAShortReceiveThatCannotBeCopied) {
  const OperationId received = receive(device(0, kShort));
  copier_.fail_query = copy_failure();
  say_send(0, std::span(peers_).first(kShort), message());
  steps(3);
  EXPECT_EQ(end_of(received).code(), Code::kCuda);
  EXPECT_EQ(inbox_.size(), 0u);
}

// The application has been told that there is no such receive any more.
TEST_F(LinkEnds, NoNotificationForAReceiveThatWasGivenUpAndEndsWellAllTheSame) {
  for (const bool by_deadline : {true, false}) {
    const OperationId moving = begin_receive(message(), std::chrono::seconds(by_deadline ? 1 : 30));
    if (by_deadline) {
      pass(1200);
    } else {
      cancel(moving);
    }
    EXPECT_TRUE(pending(moving));
    send_from_peer();
    EXPECT_TRUE(drive([&] { return !pending(moving); }));
    EXPECT_EQ(end_of(moving).code(), by_deadline ? Code::kTimeout : Code::kCancelled);
  }
  const OperationId copied = receive(device(0, kShort));
  copier_.hold();
  say_send(2, std::span(peers_).first(kShort), message());
  step();
  cancel(copied);
  copier_.release();
  steps(2);
  EXPECT_EQ(end_of(copied).code(), Code::kCancelled);
  EXPECT_EQ(inbox_.size(), 0u);
  EXPECT_TRUE(alive());
}

TEST_F(LinkEnds, NoNotificationBeforeAShortReceiveHasBeenCopied) {
  const OperationId received = receive(device(0, kShort));
  copier_.hold();
  say_send(0, std::span(peers_).first(kShort), message());
  steps(5);
  EXPECT_TRUE(pending(received));
  EXPECT_EQ(inbox_.size(), 0u);
  copier_.release();
  steps(2);
  EXPECT_TRUE(end_of(received).is_ok());
  EXPECT_EQ(inbox_.size(), 1u);
}

TEST_F(LinkEnds, AShortWriteOfThePeerThatCannotBeCopiedIsNotConfirmed) {
  copier_.fail_query = copy_failure();
  say_write(5, advertised(device_id_, 0, kShort), std::span(peers_).first(kShort), message());
  steps(3);
  EXPECT_FALSE(hear(FrameType::kDone).has_value());
  EXPECT_EQ(inbox_.size(), 0u);
  EXPECT_EQ(link_->status().code(), Code::kCuda);
}

TEST_F(LinkEnds, AShortWriteOfThePeerIsConfirmedWhenItHasBeenCopied) {
  copier_.hold();
  say_write(5, advertised(device_id_, 0, kShort), std::span(peers_).first(kShort), message());
  steps(5);
  EXPECT_FALSE(hear(FrameType::kDone).has_value());
  copier_.release();
  steps(2);
  EXPECT_TRUE(hear(FrameType::kDone).has_value());
  EXPECT_TRUE(has_peers(device_, kShort));
  EXPECT_EQ(inbox_.size(), 1u);
}

TEST_F(LinkEnds, AShortReadOfThePeerThatCannotBeCopiedIsNotAnswered) {
  copier_.fail_query = copy_failure();
  OperationPayload payload;
  payload.ranges = {advertised(device_id_, 0, kShort)};
  say(FrameType::kRead, 5, 0, kShort, Packing::kWhole, &payload);
  steps(3);
  EXPECT_FALSE(hear(FrameType::kReadData).has_value());
  EXPECT_EQ(link_->status().code(), Code::kCuda);
}

TEST_F(LinkEnds, ASendIsNotDoneWhenTheLinkFailsWhileItIsRead) {
  copier_.hold();
  const OperationId sent = send(device(0, kShort));
  step();
  link_->fail(Status(Code::kPeerGone, "test", "gone"));
  steps(3);
  EXPECT_TRUE(pending(sent)) << "the GPU still reads its memory";
  EXPECT_FALSE(link_->closed());
  copier_.release();
  steps(3);
  EXPECT_EQ(end_of(sent).code(), Code::kPeerGone);
  EXPECT_TRUE(link_->closed());
}

TEST_F(LinkEnds, AWriteIsDoneWhenThePeerSaysSoAndNotBefore) {
  const OperationId written = write(host(0, kShort));
  steps(5);
  ASSERT_TRUE(hear(FrameType::kWriteData).has_value());
  EXPECT_TRUE(pending(written));
  say_done(written, Code::kNotFound);
  step();
  EXPECT_EQ(end_of(written).code(), Code::kNotFound);
}

TEST_F(LinkEnds, ALongWriteIsDoneWhenItsLaneAndThePeerSaySo) {
  for (const bool answer_first : {true, false}) {
    const OperationId written = write(host(0, kLong));
    step();
    ASSERT_TRUE(hear(FrameType::kWrite).has_value());
    say_of(written, FrameType::kGo);
    const TransferId got = receive_at_peer();
    if (answer_first) say_done(written, Code::kCuda);
    EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
    EXPECT_EQ(peer_recv_->poll(got).state, TransferState::kDone);
    steps(5);
    if (!answer_first) {
      EXPECT_TRUE(pending(written)) << "it is not known to be in place";
      say_done(written, Code::kCuda);
      step();
    }
    EXPECT_EQ(end_of(written).code(), Code::kCuda) << "the peer says that it is not in place";
  }
}

// Other connections of the endpoint have what all may have together, and one of them is the next.
TEST_F(LinkEnds, WhoIsBehindOthersIsLookedAtWhenItIsTheFirst) {
  ChunkBudget budget({.together = 4096, .turn = 4096, .patience = std::chrono::hours(1)});
  const char others[2] = {};
  ChunkBudget::Asker holder{.connection = &others[0]}, next{.connection = &others[1]};
  const auto share = budget.take(holder, 4096, clock_.now());
  ASSERT_TRUE(share.has_value());
  ASSERT_FALSE(budget.take(next, 4096, clock_.now()).has_value());
  budget_ = &budget;
  renew();
  const OperationId written = write(host(0, kLong));
  step();
  say_of(written, FrameType::kGo);
  const TransferId got = receive_at_peer();
  ASSERT_TRUE(drive([&] { return link_->flight_record().find("waits for its turn") != std::string::npos; }));
  EXPECT_FALSE(link_->needs_polling());
  EXPECT_EQ(link_->chunks_in_flight(), 0u);
  budget.leave(next);
  EXPECT_TRUE(link_->needs_polling()) << "it is the first now";
  budget.give_back(*share);
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  EXPECT_EQ(peer_recv_->poll(got).state, TransferState::kDone);
  say_done(written);
  ASSERT_TRUE(drive([&] { return !pending(written); }));
  EXPECT_TRUE(end_of(written).is_ok());
  EXPECT_FALSE(link_->needs_polling());
  link_.reset();
}

// Only that makes sure that nothing touches the memory any more.
TEST_F(LinkEnds, AnOperationThatDoesNotEndWithinItsGraceEndsTheLink) {
  allow_log("did not end within");
  const OperationId sent = start(OperationKind::kSend, {.ranges = one(host(0, kLong)), .timeout = std::chrono::seconds(1)});
  pass(1200);
  EXPECT_TRUE(hear(FrameType::kCancel).has_value());
  EXPECT_TRUE(pending(sent));
  pass(4600);
  EXPECT_TRUE(pending(sent));
  EXPECT_TRUE(alive());
  pass(400);
  EXPECT_EQ(end_of(sent).code(), Code::kTimeout);
  EXPECT_EQ(link_->status().code(), Code::kTimeout);
}

TEST_F(LinkEnds, ADeadlineEndsWhatThePeerDoesNotKnow) {
  Gate never;
  const OperationId posted = start(OperationKind::kRecv, {.ranges = one(host(0, 8)), .timeout = std::chrono::seconds(1)});
  const OperationId waits =
      start(OperationKind::kSend, {.ranges = one(device(0, 8)), .after = &never, .timeout = std::chrono::seconds(2)});
  pass(900);
  EXPECT_TRUE(pending(posted));
  pass(200);
  EXPECT_EQ(end_of(posted).code(), Code::kTimeout);
  EXPECT_TRUE(pending(waits));
  pass(1000);
  EXPECT_EQ(end_of(waits).code(), Code::kTimeout);
  EXPECT_TRUE(alive());
}

}  // namespace
}  // namespace tcpx::testing
