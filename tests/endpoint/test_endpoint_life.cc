// The life of an operation: the four answers of poll, waits that run out, calls that are given up in every phase, deadlines,
// sizes that differ. No end of an operation makes the connection unusable.
#include <gtest/gtest.h>

#include <thread>

#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::GuardedBuffer;

class EndpointLife : public testing::EndpointPairTest {
 protected:
  static constexpr size_t kLarge = 300000;  // goes through the pipeline
  static constexpr size_t kSmall = 100;     // goes inline

  void prepare() override {
    make_pair();
    fill_pattern(source_.span(), 1);
    out_ = range(a_, source_.span());
    in_ = range(b_, target_.span());
  }
  void TearDown() override {
    if (b_.endpoint != nullptr) expect_usable();
  }

  Result<OperationId> send(size_t bytes, const SubmitOptions& options = {}) {
    const LocalRange part{out_.memory, out_.data, bytes};
    return a_->send_async(a_.conn, {&part, 1}, options);
  }
  Result<OperationId> recv(size_t bytes, const SubmitOptions& options = {}) {
    const LocalRange part{in_.memory, in_.data, bytes};
    return b_->recv_async(b_.conn, {&part, 1}, options);
  }
  void expect_usable() {
    for (const size_t bytes : {kSmall, kLarge}) {
      target_.clear();
      const auto received = recv(bytes);
      ASSERT_TRUE(done(a_, send(bytes)));
      ASSERT_TRUE(done(b_, received));
      EXPECT_TRUE(verify_pattern(target_.span().first(bytes), 1).is_ok());
      EXPECT_TRUE(target_.guards_intact());
    }
  }

  GuardedBuffer source_{kLarge}, target_{kLarge};
  LocalRange out_, in_;
};
TCPX_OVER_SETUPS(EndpointLife, testing::few_setups());

TEST_P(EndpointLife, PollHasFourAnswers) {
  const auto received = recv(kLarge);
  ASSERT_TRUE(received.is_ok());
  EXPECT_EQ(b_->poll(*received).state, OperationState::kPending);
  ASSERT_TRUE(done(a_, send(kLarge)));
  OperationAnswer answer;
  ASSERT_TRUE(testing::wait_until([&] { return (answer = b_->poll(*received)).state != OperationState::kPending; }));
  EXPECT_EQ(answer.state, OperationState::kDone);
  EXPECT_TRUE(answer.status.is_ok());
  EXPECT_EQ(b_->poll(*received).state, OperationState::kUnknown);

  const auto late = recv(kSmall, {.timeout = milliseconds(1)});
  ASSERT_TRUE(late.is_ok());
  ASSERT_TRUE(testing::wait_until([&] { return (answer = b_->poll(*late)).state != OperationState::kPending; }));
  EXPECT_EQ(answer.state, OperationState::kFailed);
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_EQ(b_->poll(*late).state, OperationState::kUnknown);
  EXPECT_TRUE(fails(a_, send(kLarge), Code::kCancelled));
  for (const uint64_t id : {uint64_t{0}, uint64_t{12345678}, ~uint64_t{0}})
    EXPECT_EQ(b_->poll(OperationId{id}).state, OperationState::kUnknown);
}

TEST_P(EndpointLife, AWaitThatRunsOutLeavesTheOperationPending) {
  const auto received = recv(kSmall);
  ASSERT_TRUE(received.is_ok());
  EXPECT_EQ(b_->wait(*received, milliseconds(5)).code(), Code::kTimeout);
  EXPECT_EQ(b_->poll(*received).state, OperationState::kPending);
  ASSERT_TRUE(done(a_, send(kSmall)));
  EXPECT_TRUE(done(b_, received));
  EXPECT_EQ(b_->wait(*received, milliseconds(5)).code(), Code::kNotFound);
}

TEST_P(EndpointLife, APostedReceiveIsGivenUpAtOnce) {
  const auto received = recv(kLarge);
  ASSERT_TRUE(received.is_ok());
  ASSERT_TRUE(b_->cancel(*received).is_ok());
  EXPECT_TRUE(fails(b_, received, Code::kCancelled));
  // Its place stays taken: the send that would have met it hears of it, unless it begins at the same time.
  ASSERT_TRUE(has_heard(a_, b_, b_.conn));
  EXPECT_TRUE(fails(a_, send(kLarge), Code::kCancelled));
  EXPECT_TRUE(target_.is_clear());
}

TEST_P(EndpointLife, AnInlineSendMeetsAReceiveThatWasGivenUp) {
  const auto received = recv(kSmall);
  ASSERT_TRUE(received.is_ok());
  ASSERT_TRUE(b_->cancel(*received).is_ok());
  EXPECT_TRUE(fails(b_, received, Code::kCancelled));
  EXPECT_TRUE(done(a_, send(kSmall))) << "it was done before that could be known";
  // A round trip later nothing has come.
  expect_usable();
}

TEST_P(EndpointLife, ASendWithoutAReceiveIsGivenUp) {
  const auto sent = send(kLarge);
  ASSERT_TRUE(sent.is_ok());
  ASSERT_TRUE(a_->cancel(*sent).is_ok());
  EXPECT_TRUE(fails(a_, sent, Code::kCancelled));
  EXPECT_TRUE(fails(b_, recv(kLarge), Code::kCancelled));
  EXPECT_TRUE(target_.is_clear());
}

TEST_P(EndpointLife, WhatIsGivenUpWhileItMovesEndsOnceAtEachEnd) {
  for (int round = 0; round < 30; ++round) {
    const auto received = recv(kLarge);
    const auto sent = send(kLarge);
    ASSERT_TRUE(received.is_ok() && sent.is_ok());
    for (int i = 0; i < round * 10; ++i) std::this_thread::yield();
    EXPECT_TRUE(round % 2 == 0 ? a_->cancel(*sent).is_ok() : b_->cancel(*received).is_ok());
    for (const auto& [side, id] : {std::pair(&a_, *sent), std::pair(&b_, *received)}) {
      const Status status = (*side)->wait(id, milliseconds(20000));
      EXPECT_TRUE(status.is_ok() || status.code() == Code::kCancelled) << status.to_string();
      EXPECT_EQ((*side)->poll(id).state, OperationState::kUnknown);
    }
  }
}

TEST_P(EndpointLife, WritesAndReadsAreGivenUp) {
  const RemoteRange whole{b_->advertise(b_.conn, in_).value(), 0};
  for (const bool writes : {true, false}) {
    for (int round = 0; round < 20; ++round) {
      const auto id =
          writes ? a_->write_async(a_.conn, {&out_, 1}, {&whole, 1}) : a_->read_async(a_.conn, {&out_, 1}, {&whole, 1});
      ASSERT_TRUE(id.is_ok());
      for (int i = 0; i < round * 10; ++i) std::this_thread::yield();
      ASSERT_TRUE(a_->cancel(*id).is_ok());
      const Status status = a_->wait(*id, milliseconds(20000));
      EXPECT_TRUE(status.is_ok() || status.code() == Code::kCancelled) << status.to_string();
    }
    // What was given up may still be on its way into or out of the target's memory, but no longer when one behind it is done.
    EXPECT_TRUE((writes ? a_->write(a_.conn, {&out_, 1}, {&whole, 1}) : a_->read(a_.conn, {&out_, 1}, {&whole, 1})).is_ok());
  }
  fill_pattern(source_.span(), 1);
}

TEST_P(EndpointLife, GivingUpWhatHasEndedChangesNothing) {
  const auto received = recv(kSmall);
  ASSERT_TRUE(done(a_, send(kSmall)));
  ASSERT_TRUE(testing::wait_until([&] { return b_->stats().connections[0].operations_done == 1; }));
  EXPECT_TRUE(b_->cancel(*received).is_ok());
  EXPECT_TRUE(done(b_, received));
  EXPECT_EQ(b_->cancel(*received).code(), Code::kNotFound);
  EXPECT_EQ(b_->cancel(OperationId{77}).code(), Code::kNotFound);
}

TEST_P(EndpointLife, ADeadlineEndsWhatMeetsNobody) {
  EXPECT_TRUE(fails(a_, send(kLarge, {.timeout = milliseconds(20)}), Code::kTimeout));
  EXPECT_TRUE(fails(b_, recv(kLarge), Code::kCancelled)) << "the sender has given it up";
  EXPECT_TRUE(fails(b_, recv(kLarge, {.timeout = milliseconds(20)}), Code::kTimeout));
  ASSERT_TRUE(has_heard(a_, b_, b_.conn));
  EXPECT_TRUE(fails(a_, send(kLarge), Code::kCancelled)) << "the receiver has given it up";
  EXPECT_TRUE(target_.is_clear());
}

TEST_P(EndpointLife, SizesThatDifferFailBothEnds) {
  for (const auto& [sent_bytes, received_bytes] :
       {std::pair{kLarge, kLarge - 1}, std::pair{kLarge - 1, kLarge}, std::pair{kLarge, kSmall}, std::pair{kLarge, size_t{0}}}) {
    for (const bool posted_first : {true, false}) {
      Result<OperationId> received = posted_first ? recv(received_bytes) : Status(Code::kInternal, "test", "not yet");
      const auto sent = send(sent_bytes);
      if (!posted_first) received = recv(received_bytes);
      EXPECT_TRUE(fails(b_, received, Code::kMismatch));
      EXPECT_TRUE(fails(a_, sent, Code::kMismatch));
      EXPECT_TRUE(target_.is_clear());
    }
  }
}

TEST_P(EndpointLife, AnInlineSendOfAnotherSizeFailsTheReceiver) {
  for (const auto& [sent_bytes, received_bytes] : {std::pair{kSmall, kLarge}, std::pair{kSmall, kSmall + 1},
                                                   std::pair{size_t{0}, size_t{1}}, std::pair{kSmall, size_t{0}}}) {
    const auto received = recv(received_bytes);
    EXPECT_TRUE(done(a_, send(sent_bytes)));
    EXPECT_TRUE(fails(b_, received, Code::kMismatch));
    EXPECT_TRUE(target_.is_clear());
  }
}

TEST_P(EndpointLife, AFullTableOfOperationsRecovers) {
  testing::Side c = make({.max_operations = 1000}), d = make();
  connect(c, d);
  const LocalRange into{reg(c, target_.span()), target_.data(), kSmall}, from{reg(d, source_.span()), source_.data(), kSmall};
  std::vector<OperationId> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(c->recv_async(c.conn, {&into, 1}).value());
  EXPECT_EQ(c->recv_async(c.conn, {&into, 1}).status().code(), Code::kExhausted);
  EXPECT_EQ(c->stats().operations_outstanding, 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(d->send(d.conn, {&from, 1}).is_ok());
  for (const OperationId id : ids) ASSERT_TRUE(done(c, id));
  EXPECT_EQ(c->stats().operations_outstanding, 0u);
  const auto again = c->recv_async(c.conn, {&into, 1});
  ASSERT_TRUE(d->send(d.conn, {&from, 1}).is_ok());
  EXPECT_TRUE(done(c, again));
}

}  // namespace
}  // namespace tcpx
