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
  EXPECT_EQ(hear(FrameType::kWrite)->flags, kBegunFlag);
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; })) << "nobody has said Go";
  EXPECT_EQ(peer_recv_->poll(first).state, TransferState::kDone);
  EXPECT_TRUE(has_peers(host_, kLong));
  EXPECT_TRUE(pending(written));
  say_done(written);
  steps(3);
  EXPECT_TRUE(end_of(written).is_ok());

  say(FrameType::kPosted, 0, 0, kLong);
  steps(2);
  const OperationId sent = send(host(kLong, kLong));
  const TransferId second = receive_at_peer();
  EXPECT_TRUE(drive([&] { return !pending(sent); }));
  EXPECT_TRUE(end_of(sent).is_ok());
  EXPECT_EQ(hear(FrameType::kSend)->flags, kBegunFlag);
  EXPECT_EQ(peer_recv_->poll(second).state, TransferState::kDone);
}

TEST_F(LinkBegins, ASendWhoseReceiveIsNotPostedAsks) {
  const std::function<void()> not_posted[] = {[] {},
                                              [&] { say(FrameType::kPosted, 0, sends_, kLong - 1); },
                                              [&] { say(FrameType::kPosted, 0, sends_ + 1, kLong); },
                                              [&] {
                                                say(FrameType::kPosted, 0, sends_, kLong);
                                                say(FrameType::kPosted, 0, sends_, 0);
                                              }};
  for (const auto& say_so : not_posted) {
    renew();
    say_so();
    steps(2);
    const OperationId sent = send(host(0, kLong));
    step();
    EXPECT_EQ(hear(FrameType::kSend)->flags, 0);
    say_of(sent, FrameType::kGo);
    steps(2);
    EXPECT_TRUE(hear(FrameType::kBegin).has_value());
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
  say(FrameType::kGo, static_cast<uint64_t>(written), 0, 0, Packing::kPacked);
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  EXPECT_EQ(peer_recv_->poll(second).state, TransferState::kDone);
  EXPECT_TRUE(hear(FrameType::kBegin).has_value());
  EXPECT_TRUE(has_peers(host_, kLong));
  EXPECT_TRUE(pending(written));
  say_done(written);
  steps(3);
  EXPECT_TRUE(end_of(written).is_ok());
  (void)write(host(0, kLong));
  step();
  (void)hear(FrameType::kWrite);
  EXPECT_EQ(hear(FrameType::kWrite)->flags, 0) << "this target would want it packed again";
}

// Go comes for what was given up when all had left.
TEST_F(LinkBegins, AGoForAWriteThatHasEndedIsAnswered) {
  const OperationId written = write(host(0, kLong));
  (void)receive_at_peer();
  EXPECT_EQ(link_->network_bytes(), kLong) << "until it has ended";
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0 && link_->chunks_in_flight() == 0; }));
  EXPECT_EQ(link_->network_bytes(), 0u);
  cancel(written);
  steps(2);
  EXPECT_EQ(end_of(written).code(), Code::kCancelled);
  say(FrameType::kGo, static_cast<uint64_t>(written), 0, 0, Packing::kPacked);
  steps(2);
  const auto gone = hear(FrameType::kCancel);
  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(gone->operation, static_cast<uint64_t>(written));
  EXPECT_EQ(gone->bytes, static_cast<uint64_t>(CancelFrame::What::kGone));
  EXPECT_TRUE(alive());
}

// The write's first bytes have not left yet.
TEST_F(LinkBegins, AGoForAWriteThatStillMovesHasItGoOnceMore) {
  const OperationId written = write(host(0, kLong));
  say(FrameType::kGo, static_cast<uint64_t>(written), 0, 0, Packing::kPacked);
  step();
  EXPECT_TRUE(hear(FrameType::kBegin).has_value());
  const TransferId first = receive_at_peer(), second = receive_at_peer();
  say_done(written);
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  EXPECT_EQ(peer_recv_->poll(first).state, TransferState::kDone);
  EXPECT_EQ(peer_recv_->poll(second).state, TransferState::kDone);
  EXPECT_TRUE(drive([&] { return !pending(written); }));
  EXPECT_TRUE(end_of(written).is_ok());
}

TEST_F(LinkBegins, AGoForAWriteThatIsGivenUpAndStillMovesIsAnswered) {
  const OperationId written = write(host(0, kLong));
  cancel(written);
  EXPECT_TRUE(pending(written)) << "its memory is to be read";
  say(FrameType::kGo, static_cast<uint64_t>(written), 0, 0, Packing::kPacked);
  step();
  const auto gone = hear(FrameType::kCancel);
  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(gone->bytes, static_cast<uint64_t>(CancelFrame::What::kGone));
  EXPECT_TRUE(drive([&] { return !pending(written); }));
  EXPECT_EQ(end_of(written).code(), Code::kCancelled);
}

// Its receiver has given its receive up at the same moment.
TEST_F(LinkBegins, ASendThatIsRefusedWhileItMovesEndsSo) {
  say(FrameType::kPosted, 0, 0, kLong);
  steps(2);
  const OperationId sent = send(host(0, kLong));
  say(FrameType::kPosted);
  say_done(sent, Code::kCancelled);
  EXPECT_TRUE(drive([&] { return !pending(sent); }));
  EXPECT_EQ(end_of(sent).code(), Code::kCancelled);
}

TEST_F(LinkBegins, AReadIntoMemoryThatThePluginRefusesAsksForParcels) {
  fake_.fail_call(Call::kRegister, 1, Status(Code::kPlugin, "register memory", "not this"), 1);
  (void)read(host(0, kLong));
  step();
  const auto asked = hear(FrameType::kRead);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->packing, static_cast<uint8_t>(Packing::kPacked));
}

// What has begun cannot be taken back, and what the peer has no room for holds up the rest.
TEST_F(LinkBegins, NoMoreBeginsBesideMuchThatHasNotLeft) {
  int begun = 0, asks = 0;
  for (int i = 0; i < 80; ++i) (void)write(host(0, kPart));
  step();
  while (const auto frame = hear(FrameType::kWrite)) ++(frame->flags == kBegunFlag ? begun : asks);
  EXPECT_EQ(begun, 64) << "16 MiB";
  EXPECT_EQ(asks, 16);
}

// The oldest, of which a send may have gone before.
TEST_F(LinkBegins, OfReceivesThatArePostedAheadTheOldestAreForgotten) {
  for (const uint64_t posted : {1024, 1025}) {
    renew();
    for (uint64_t sequence = 0; sequence < posted; ++sequence) say(FrameType::kPosted, 0, sequence, kLong);
    steps(4);
    (void)send(host(0, kLong));
    step();
    EXPECT_EQ(hear(FrameType::kSend)->flags, posted == 1024 ? kBegunFlag : 0);
  }
}

}  // namespace
}  // namespace tcpx::testing
