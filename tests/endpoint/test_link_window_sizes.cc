// A link whose windows are small at first: what its peer asks for, what it gets of the memory that all peers share, and what it
// gives back.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/link_fixture.h"

namespace tcpx::testing {
namespace {

constexpr uint64_t kFloor = PeerMemory::kFloorBytes;

class LinkWindowSizes : public LinkTest {
 protected:
  LinkWindowSizes() {
    windows_ = CreditWindows::Size::kSmall;
    peers_memory_ = &memory_;
    renew();
  }
  ~LinkWindowSizes() override { link_.reset(); }
  /// The peer asks for a larger window.
  void ask_for(Window window) {
    say(FrameType::kCredit, static_cast<uint64_t>(window));
    step();
  }
  /// Sends of the peer that nobody receives. @return how many
  uint64_t say_sends(uint64_t bytes) {
    const std::vector<std::byte> data(kShort);
    uint64_t said = 0;
    for (; bytes >= window_cost(kShort); bytes -= window_cost(kShort)) say_send(next_++, data), ++said;
    step();
    return said;
  }
  void receive_all(uint64_t from) {
    for (uint64_t i = from; i < next_; ++i) (void)receive(host(0, kShort));
    step();
  }

  PeerMemory memory_{64 * kFloor};
  PeerMemory::Place others_ = memory_.admit("10.0.0.2", true).value();
  std::vector<PeerMemory::Place> crowd_;
  uint64_t next_ = 0;
};

TEST_F(LinkWindowSizes, AskedForALargerOneItGivesAWholeOneWhileThereIsPlenty) {
  ask_for(Window::kSends);
  const auto credit = hear(FrameType::kCredit);
  ASSERT_TRUE(credit.has_value());
  EXPECT_EQ(credit->operation, static_cast<uint64_t>(Window::kSends));
  EXPECT_EQ(credit->value, kInlineWindowBytes);
  EXPECT_EQ(credit->bytes, kInlineWindowBytes - kSmallWindowBytes);
  EXPECT_EQ(memory_.held(), 2 * kFloor + credit->bytes);
  say_sends(kInlineWindowBytes);
  EXPECT_TRUE(alive());
  EXPECT_FALSE(hear(FrameType::kCredit).has_value());
}

TEST_F(LinkWindowSizes, TwiceItsSizeWhenThereIsLess) {
  ASSERT_TRUE(others_.grow(30 * kFloor));
  ask_for(Window::kSendOffers);
  const auto credit = hear(FrameType::kCredit);
  ASSERT_TRUE(credit.has_value());
  EXPECT_EQ(credit->value, 2 * kSmallWindowBytes);
  EXPECT_EQ(credit->bytes, kSmallWindowBytes);
}

// Nothing is refused: the peer waits until others let go of something.
TEST_F(LinkWindowSizes, NoneIsGivenUntilThereIsMemory) {
  PeerMemory::Place third = memory_.admit("10.0.0.3", true).value();
  ASSERT_TRUE(others_.grow(30 * kFloor));
  while (third.grow(kSmallWindowBytes)) {
  }
  PeerMemory::Place more = memory_.admit("10.0.0.4", true).value();
  while (more.grow(1000)) {
  }
  for (int i = 5; memory_.held() + kFloor <= memory_.most(); ++i)
    crowd_.push_back(memory_.admit(std::to_string(i), true).value());
  ask_for(Window::kSends);
  steps(100);
  EXPECT_FALSE(hear(FrameType::kCredit).has_value());
  EXPECT_TRUE(alive());
  others_ = {};
  steps(30);
  const auto credit = hear(FrameType::kCredit);
  ASSERT_TRUE(credit.has_value());
  EXPECT_GT(credit->bytes, 0u);
}

TEST_F(LinkWindowSizes, WhatWasGrownGoesBackWithTheCreditWhenThereIsLittle) {
  ask_for(Window::kSends);
  ASSERT_TRUE(hear(FrameType::kCredit).has_value());
  const uint64_t grown = memory_.held();
  say_sends(kInlineWindowBytes);
  ASSERT_TRUE(others_.grow(30 * kFloor));
  PeerMemory::Place third = memory_.admit("10.0.0.3", true).value();
  ASSERT_TRUE(third.grow(2 * kFloor));
  receive_all(0);
  steps(5);
  EXPECT_LT(memory_.held(), grown + 33 * kFloor);
  const auto credit = hear(FrameType::kCredit);
  ASSERT_TRUE(credit.has_value());
  EXPECT_LT(credit->value, kInlineWindowBytes);
  EXPECT_GE(credit->value, kSmallWindowBytes);
  // It goes on at the size it has.
  ASSERT_TRUE(drive([&] { return room_[static_cast<size_t>(Window::kSends)] >= kSmallWindowBytes / 2; }));
  const uint64_t from = next_;
  for (int i = 0; i < 50; ++i) {
    say_sends(window_cost(kShort));
    receive_all(next_ - 1);
  }
  EXPECT_GT(next_, from);
  EXPECT_TRUE(alive());
}

TEST_F(LinkWindowSizes, AllGoesBackWithTheLink) {
  ask_for(Window::kSends);
  ask_for(Window::kRest);
  EXPECT_GT(memory_.held(), 2 * kFloor);
  link_.reset();
  EXPECT_EQ(memory_.held(), kFloor);
}

// Of a link that has ended only what can still be received counts.
TEST_F(LinkWindowSizes, WhatHasArrivedCountsAfterTheEnd) {
  const uint64_t said = say_sends(kSmallWindowBytes);
  steps(10);
  peer_->fail(Status(Code::kCancelled, "test", "it leaves"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(memory_.held(), kFloor + said * window_cost(kShort));
}

TEST_F(LinkWindowSizes, ThisEndAsksForALargerOneAndGoesOn) {
  std::string text(kMaxNotifyTextBytes, 't');
  const OperationId id = start(OperationKind::kSend, {.ranges = one(host(0, 8)), .notify = NotifyMsg{.name = "n", .msg = text}});
  step();
  EXPECT_TRUE(pending(id));
  bool left = false;
  EXPECT_TRUE(drive([&] {
    if (const auto ask = hear(FrameType::kCredit)) {
      EXPECT_EQ(ask->bytes, 0u);
      EXPECT_EQ(ask->value, 0u);
      const uint64_t whole = bytes_of(Window{static_cast<uint8_t>(ask->operation)});
      say(FrameType::kCredit, ask->operation, whole, whole - kSmallWindowBytes);
    }
    return left = left || hear(FrameType::kSendData) || hear(FrameType::kSend);
  }));
}

// A peer that asks for much and reads nothing gets no credit, so what waits for it is bounded by its windows.
TEST_F(LinkWindowSizes, NoCreditForAPeerThatDoesNotReadItsAnswers) {
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, kShort)};
  const WindowUse use = use_of(FrameType::kRead, kShort, payload, kInline);
  // What the socket takes, and a little more, is answered at once.
  constexpr uint64_t kFree = 1u << 20;
  uint64_t said = 0;
  for (uint64_t bytes = 0; bytes < kSmallWindowBytes + kFree && alive(); bytes += use.bytes) {
    say(FrameType::kRead, ++said, 0, kShort, Packing::kWhole, &payload);
    step(false);
  }
  steps(20, false);
  EXPECT_FALSE(alive()) << said << " reads of " << use.bytes << " each; " << link_->flight_record();
}

}  // namespace
}  // namespace tcpx::testing
