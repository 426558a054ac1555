// A link that waits for a peer of the same host which stands still: it is not looked at again until the peer has moved, and no
// wake-up is lost in either direction.
#include <gtest/gtest.h>
#include <poll.h>

#include "tests/support/near_link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkWakes : public NearLinkTest {
 protected:
  LinkWakes() {
    shared_ = std::make_unique<SharedPair>();
    renew(make_host(false));
  }

  /// What the link, asleep, wants to be woken for.
  uint32_t wanted() const { return shared_->back->reader_wants; }
  /// The peer sleeps, and wants that. Nothing that woke it before counts.
  void peer_sleeps(uint32_t wants) {
    std::array<std::byte, 64> bytes;
    while (::recv(shared_->sockets.b.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    shared_->forth->reader_wants = wants;
  }
  bool peer_is_woken() const {
    pollfd entry{shared_->sockets.b.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  /// Turns in which ServedLinks would have called `progress` while the peer stood still for a second, after a moment of patience.
  size_t turns_while_the_peer_stands_still() {
    steps(5);
    size_t turns = 0;
    for (int i = 0; i < 1000; ++i) {
      clock_.advance(std::chrono::milliseconds(1));
      if (!link_->has_arrived() && !link_->needs_polling()) continue;
      ++turns;
      (void)link_->progress(false);
    }
    return turns;
  }
  void expect_sleeps(uint32_t wants) {
    EXPECT_EQ(turns_while_the_peer_stands_still(), 0u);
    EXPECT_FALSE(link_->prepare_sleep());
    EXPECT_EQ(wanted(), wants);
  }
  /// The peer has moved: seen awake, about to sleep, and in the next turn.
  void expect_wakes() {
    EXPECT_TRUE(link_->has_arrived());
    EXPECT_TRUE(link_->prepare_sleep());
    link_->end_sleep();
    EXPECT_EQ(wanted(), 0u);
    EXPECT_TRUE(link_->progress(false));
  }
  void offer_and_go() {
    offer_write({});
    ASSERT_TRUE(await(FrameType::kGo));
  }
  /// More than the ring takes is under way to a peer that has taken nothing.
  void fill_ring() {
    BulkRing& ring = peer_area_.bulk_ring(true);
    for (size_t sent = 0; sent <= BulkRing::kBytes; sent += kLong) {
      const OperationId id = write(host(0, kLong));
      ASSERT_TRUE(await(FrameType::kWrite));
      say_go(id, Way::kRing);
    }
    ASSERT_TRUE(drive([&] { return ring.written == BulkRing::kBytes; }));
  }
};

TEST_F(LinkWakes, AnEndThatReceivesSleepsUntilThePeerHasPutSomethingIn) {
  offer_and_go();
  expect_sleeps(kWakeForBytes | kWakeForBulkBytes);
  EXPECT_EQ(put(std::span(peers_).first(kLong / 2)), kLong / 2);
  expect_wakes();
  expect_sleeps(kWakeForBytes | kWakeForBulkBytes);
  EXPECT_EQ(put(std::span(peers_).subspan(kLong / 2, kLong - kLong / 2)), kLong - kLong / 2);
  expect_wakes();
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(has_peers(host_, kLong));
  expect_sleeps(kWakeForBytes);
}

TEST_F(LinkWakes, AnEndThatSendsSleepsUntilThePeerHasMadeRoom) {
  fill_ring();
  expect_sleeps(kWakeForBytes | kWakeForBulkRoom);
  peer_area_.bulk_ring(true).read = 1;
  expect_wakes();
  EXPECT_EQ(peer_area_.bulk_ring(true).written, BulkRing::kBytes + 1);
  expect_sleeps(kWakeForBytes | kWakeForBulkRoom);
}

TEST_F(LinkWakes, APeerThatWaitsForBytesIsWokenByThem) {
  const OperationId id = write(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  peer_sleeps(kWakeForBulkRoom);
  say_go(id, Way::kRing);
  BulkRing& ring = peer_area_.bulk_ring(true);
  (void)peer_->flush();
  (void)link_->progress(true);
  EXPECT_EQ(ring.written, kLong);
  EXPECT_FALSE(peer_is_woken()) << "it does not wait for them";
  const OperationId next = write(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  say_go(next, Way::kRing);
  peer_sleeps(kWakeForBulkBytes);
  (void)peer_->flush();
  (void)link_->progress(true);
  EXPECT_EQ(ring.written, 2 * kLong);
  EXPECT_TRUE(peer_is_woken());
  (void)link_->progress(true);
  peer_sleeps(kWakeForBulkBytes);
  (void)link_->progress(true);
  EXPECT_FALSE(peer_is_woken()) << "once";
}

TEST_F(LinkWakes, APeerThatWaitsForRoomIsWokenByIt) {
  offer_and_go();
  EXPECT_EQ(put(std::span(peers_).first(kLong / 2)), kLong / 2);
  peer_sleeps(kWakeForBulkBytes);
  (void)link_->progress(false);
  EXPECT_EQ(peer_area_.bulk_ring(false).read, kLong / 2);
  EXPECT_FALSE(peer_is_woken()) << "it does not wait for room";
  EXPECT_EQ(put(std::span(peers_).subspan(kLong / 2, 1)), 1u);
  peer_sleeps(kWakeForBulkRoom);
  (void)link_->progress(false);
  EXPECT_TRUE(peer_is_woken());
}

// Frames, and not bulk data.
TEST_F(LinkWakes, ABacklogSleepsUntilThePeerHasReadFrames) {
  link_->notify(
      std::make_unique<Notification>(kConn, 0, NotifyMsg{"n", std::string(NotifyMsg::kMaxTextBytes, 't')}, link_->face()));
  steps(5, false);
  EXPECT_EQ(shared_->forth->written, SharedRing::kBytes);
  size_t turns = 0;
  for (int i = 0; i < 1000; ++i) {
    clock_.advance(std::chrono::milliseconds(1));
    if (link_->has_arrived() || link_->needs_polling()) ++turns;
  }
  EXPECT_EQ(turns, 0u);
  EXPECT_FALSE(link_->prepare_sleep());
  EXPECT_EQ(wanted(), kWakeForBytes | kWakeForRoom);
  (void)peer_->receive(heard_);
  expect_wakes();
  EXPECT_TRUE(await(FrameType::kNotify));
}

}  // namespace
}  // namespace tcpx::testing
