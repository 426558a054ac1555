// Transfers that a link begins by itself before its peer has said Go, step by step.
#include <functional>

#include "tests/support/eager_link_fixture.h"

namespace tcpx::testing {
namespace {

using LinkBegins = EagerLinkTest;

TEST_F(LinkBegins, TheLinkBeginsItsOwn) {
  const OperationId written = write(host(0, kLong));
  const TransferId first = receive_at_peer();
  step();
  EXPECT_EQ(hear(ControlType::kWrite)->flags, kBegunFlag);
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; })) << "nobody has said Go";
  EXPECT_EQ(peer_recv_->poll(first).state, TransferState::kDone);
  EXPECT_TRUE(has_peers(host_, kLong));
  EXPECT_TRUE(pending(written));
  say_done(written);
  steps(3);
  EXPECT_TRUE(end_of(written).is_ok());

  say(ControlType::kPosted, 0, 0, kLong);
  steps(2);
  const OperationId sent = send(host(kLong, kLong));
  const TransferId second = receive_at_peer();
  EXPECT_TRUE(drive([&] { return !pending(sent); }));
  EXPECT_TRUE(end_of(sent).is_ok());
  EXPECT_EQ(hear(ControlType::kSend)->flags, kBegunFlag);
  EXPECT_EQ(peer_recv_->poll(second).state, TransferState::kDone);
}

TEST_F(LinkBegins, ASendWhoseReceiveIsNotPostedAsks) {
  const std::function<void()> not_posted[] = {[] {},
                                              [&] { say(ControlType::kPosted, 0, sends_, kLong - 1); },
                                              [&] { say(ControlType::kPosted, 0, sends_ + 1, kLong); },
                                              [&] {
                                                say(ControlType::kPosted, 0, sends_, kLong);
                                                say(ControlType::kPosted, 0, sends_, 0);
                                              }};
  for (const auto& say_so : not_posted) {
    renew();
    say_so();
    steps(2);
    const OperationId sent = send(host(0, kLong));
    step();
    EXPECT_EQ(hear(ControlType::kSend)->flags, 0);
    say_of(sent, ControlType::kGo);
    steps(2);
    EXPECT_TRUE(hear(ControlType::kBegin).has_value());
    EXPECT_TRUE(alive());
  }
}

TEST_F(LinkBegins, ItsOwnWriteGoesOnceMoreWhenTheTargetWantsItPacked) {
  const OperationId written = write(host(0, kLong));
  const TransferId first = receive_at_peer();
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  EXPECT_EQ(peer_recv_->poll(first).state, TransferState::kDone);
  peers_.assign(peers_.size(), std::byte{0});
  const TransferId second = receive_at_peer();
  say(ControlType::kGo, static_cast<uint64_t>(written), 0, 0, Packing::kPacked);
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  EXPECT_EQ(peer_recv_->poll(second).state, TransferState::kDone);
  EXPECT_TRUE(hear(ControlType::kBegin).has_value());
  EXPECT_TRUE(has_peers(host_, kLong));
  EXPECT_TRUE(pending(written));
  say_done(written);
  steps(3);
  EXPECT_TRUE(end_of(written).is_ok());
  (void)write(host(0, kLong));
  step();
  (void)hear(ControlType::kWrite);
  EXPECT_EQ(hear(ControlType::kWrite)->flags, 0) << "this target would want it packed again";
}

// Go comes for what was given up when all had left.
TEST_F(LinkBegins, AGoForAWriteThatHasEndedIsAnswered) {
  const OperationId written = write(host(0, kLong));
  (void)receive_at_peer();
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0 && link_->chunks_in_flight() == 0; }));
  cancel(written);
  steps(2);
  EXPECT_EQ(end_of(written).code(), Code::kCancelled);
  say(ControlType::kGo, static_cast<uint64_t>(written), 0, 0, Packing::kPacked);
  steps(2);
  const auto gone = hear(ControlType::kCancel);
  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(gone->operation, static_cast<uint64_t>(written));
  EXPECT_EQ(gone->bytes, static_cast<uint64_t>(CancelFrame::What::kGone));
  EXPECT_TRUE(alive());
}

}  // namespace
}  // namespace tcpx::testing
