// False frames of a peer, at a link that is moved step by step: of each frame the ones that lie a little.
#include "tests/support/link_fixture.h"

namespace tcpx::testing {
namespace {

constexpr size_t kLong = 100'000;

class LinkFrames : public LinkTest {
 protected:
  void expect_refused(OperationId id) {
    EXPECT_EQ(end_of(id).code(), Code::kProtocol);
    EXPECT_EQ(link_->status().code(), Code::kProtocol) << link_->status().to_string();
  }
  OperationId read(HeldRange range) {
    const uint64_t bytes = range.bytes;
    return start(OperationKind::kRead, {.ranges = one(std::move(range)), .remote = {{1, 0, bytes}}});
  }
  void say_read_data(OperationId id, size_t bytes) {
    say_raw(make_header(ControlType::kReadData, static_cast<uint64_t>(id), 0, bytes), std::span(peers_).first(bytes));
  }
};

// The excess over the answer was once read from behind it, and written to the reader's memory.
TEST_F(LinkFrames, AReadAnsweredWithAnotherNumberOfBytes) {
  const Bytes host_before = host_, device_before = device_;
  for (const bool on_gpu : {false, true}) {
    for (const size_t bytes : {size_t{0}, size_t{1}, kShort - 1, kShort + 1, size_t{65536}}) {
      renew();
      const OperationId asked = read(on_gpu ? device(100, kShort) : host(100, kShort));
      step();
      ASSERT_TRUE(hear(ControlType::kRead).has_value());
      say_read_data(asked, bytes);
      steps(3);
      expect_refused(asked);
      EXPECT_EQ(host_, host_before) << bytes;
      EXPECT_EQ(device_, device_before) << bytes;
    }
  }
}

TEST_F(LinkFrames, AReadThatIsAnsweredAsAsked) {
  const OperationId first = read(host(0, kShort)), second = read(device(0, kShort)), nothing = read(host(0, 0));
  steps(2);
  say_read_data(second, kShort);
  say_read_data(nothing, 0);
  say_read_data(first, kShort);
  steps(3);
  for (const OperationId id : {first, second, nothing}) EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(std::equal(host_.begin(), host_.begin() + kShort, peers_.begin()));
  EXPECT_TRUE(std::equal(device_.begin(), device_.begin() + kShort, peers_.begin()));
  say_read_data(first, 17);  // once more: of nothing that is open
  steps(2);
  EXPECT_TRUE(alive());
  EXPECT_TRUE(std::equal(host_.begin(), host_.begin() + kShort, peers_.begin()));
}

TEST_F(LinkFrames, ReadDataBehindReady) {
  const OperationId asked = read(host(0, kShort));
  step();
  say(ControlType::kReady, static_cast<uint64_t>(asked));
  say_read_data(asked, kShort);
  steps(3);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(asked).code(), Code::kProtocol);
}

TEST_F(LinkFrames, ReadyTwice) {
  const OperationId asked = read(host(0, kLong));
  step();
  for (int i = 0; i < 2; ++i) say(ControlType::kReady, static_cast<uint64_t>(asked));
  steps(3);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(asked).code(), Code::kProtocol);
}

TEST_F(LinkFrames, ReadDataForAWrite) {
  for (const size_t bytes : {size_t{kShort}, kLong}) {
    renew();
    const OperationId written = start(OperationKind::kWrite, {.ranges = one(host(0, bytes)), .remote = {{1, 0, bytes}}});
    steps(2);
    say_read_data(written, kShort);
    steps(2);
    expect_refused(written);
  }
}

// The value tells whose operation it is: 1 of the peer's own, 0 of this end's.
TEST_F(LinkFrames, AGoOfTheWrongEnd) {
  const OperationId sent = send(host(0, kLong));
  step();
  say(ControlType::kGo, static_cast<uint64_t>(sent), 1);
  steps(2);
  expect_refused(sent);
  renew();
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, kLong)};
  say(ControlType::kRead, 5, 0, kLong, Packing::kWhole, &payload);
  steps(2);
  const auto ready = hear(ControlType::kReady);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->operation, 5u);
  say(ControlType::kGo, 5, 0);
  steps(2);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
}

TEST_F(LinkFrames, AReadOfThePeerGoesWhenItSaysSo) {
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, kLong)};
  say(ControlType::kRead, 5, 0, kLong, Packing::kWhole, &payload);
  steps(2);
  ASSERT_TRUE(hear(ControlType::kReady).has_value());
  steps(20);
  EXPECT_EQ(fake_.calls(Call::kSend), 0u) << "the peer may not have posted its receive";
  const RegisteredMemory memory = peer_recv_->register_memory(peers_.data(), peers_.size(), MemoryType::kHost).value();
  const TransferId got = peer_recv_->submit({.memory = memory, .bytes = kLong}).value();
  say(ControlType::kGo, 5, 1);
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  EXPECT_EQ(peer_recv_->poll(got).state, TransferState::kDone);
  EXPECT_TRUE(std::equal(host_.begin(), host_.begin() + kLong, peers_.begin()));
  EXPECT_TRUE(alive());
}

// The link says whose it is in the same way.
TEST_F(LinkFrames, TheLinksOwnGoSaysWhoseOperationItIs) {
  (void)receive(host(0, kLong));
  OperationPayload payload;
  say(ControlType::kSend, 61, 0, kLong, Packing::kWhole, &payload);
  steps(2);
  auto go = hear(ControlType::kGo);
  ASSERT_TRUE(go.has_value());
  EXPECT_EQ(go->operation, 61u);
  EXPECT_EQ(go->value, 0u) << "of the peer's send";
  const OperationId asked = read(host(kLong, kLong));
  step();
  say(ControlType::kReady, static_cast<uint64_t>(asked));
  steps(2);
  go = hear(ControlType::kGo);
  ASSERT_TRUE(go.has_value());
  EXPECT_EQ(go->operation, static_cast<uint64_t>(asked));
  EXPECT_EQ(go->value, 1u) << "of this end's read";
}

TEST_F(LinkFrames, TheSameReadTwice) {
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, kLong)};
  for (int i = 0; i < 2; ++i) say(ControlType::kRead, 5, 0, kLong, Packing::kWhole, &payload);
  steps(2);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
}

TEST_F(LinkFrames, AReadOfThePeerIsWithdrawn) {
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, kLong)};
  say(ControlType::kRead, 5, 0, kLong, Packing::kWhole, &payload);
  say(ControlType::kCancel, 5);
  steps(2);
  EXPECT_TRUE(alive());
  EXPECT_FALSE(hear(ControlType::kDone).has_value());
  const auto removed = registry_.remove(host_id_, Deadline(TimePoint{}));
  EXPECT_TRUE(removed.is_ok()) << "held for a read that is no more: " << removed.status().to_string();
}

TEST_F(LinkFrames, ASendOfThePeerIsWithdrawnAndItsPlaceStaysEmpty) {
  OperationPayload payload;
  say(ControlType::kSend, 61, 0, kLong, Packing::kWhole, &payload);
  say(ControlType::kCancel, 61, 0, 1);
  steps(2);
  const auto answer = hear(ControlType::kDone);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->operation, 61u);
  EXPECT_EQ(answer->value, 14u) << "TCPX_E_CANCELLED";
  const OperationId received = receive(host(0, kLong));
  step();
  EXPECT_EQ(end_of(received).code(), Code::kCancelled);
  EXPECT_TRUE(alive());
}

TEST_F(LinkFrames, AWithdrawalOfAnotherSend) {
  OperationPayload payload;
  for (uint64_t i = 0; i < 2; ++i) say(ControlType::kSend, 61 + i, i, kLong, Packing::kWhole, &payload);
  say(ControlType::kCancel, 61, 1, 1);  // the number of one, the place of the other
  steps(2);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
}

TEST_F(LinkFrames, AWithdrawalOfASendThatCameWithItsData) {
  say_send(0, std::span(peers_).first(8));
  say(ControlType::kCancel, 1000, 0, 1);
  steps(2);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
}

TEST_F(LinkFrames, WhatWasNeverOfferedIsWithdrawnOnlyWhereNothingHasCome) {
  say_send(0, std::span(peers_).first(8));
  say(ControlType::kCancel, 1000, 0, 0);
  steps(2);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
}

TEST_F(LinkFrames, ADoneForAReceiveThatMoves) {
  const OperationId received = receive(host(0, kLong));
  OperationPayload payload;
  say(ControlType::kSend, 61, 0, kLong, Packing::kWhole, &payload);
  step();
  say(ControlType::kDone, static_cast<uint64_t>(received));
  steps(2);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(received).code(), Code::kProtocol);
}

TEST_F(LinkFrames, AGoodAnswerToASendThatWasOnlyOffered) {
  const OperationId sent = send(host(0, kLong));
  step();
  say(ControlType::kDone, static_cast<uint64_t>(sent));
  steps(2);
  expect_refused(sent);
}

TEST_F(LinkFrames, AGoodAnswerToAWriteThatWasOnlyOffered) {
  const OperationId written = start(OperationKind::kWrite, {.ranges = one(host(0, kLong)), .remote = {{1, 0, kLong}}});
  step();
  say(ControlType::kDone, static_cast<uint64_t>(written));
  steps(2);
  expect_refused(written);
}

TEST_F(LinkFrames, AGoodAnswerToARead) {
  for (const size_t bytes : {size_t{kShort}, kLong}) {
    renew();
    const Bytes before = host_;
    const OperationId asked = read(host(0, bytes));
    step();
    say(ControlType::kDone, static_cast<uint64_t>(asked));
    steps(2);
    expect_refused(asked);
    EXPECT_EQ(host_, before);
  }
}

TEST_F(LinkFrames, CreditBeyondWhatIsOwed) {
  for (uint64_t window = 0; window < std::size(kWindowSizes); ++window) {
    renew();
    say(ControlType::kCredit, window, 0, 1);
    steps(2);
    EXPECT_EQ(link_->status().code(), Code::kProtocol) << window;
  }
  renew();
  (void)send(host(0, kShort));
  steps(2);
  say(ControlType::kCredit, 0, 0, window_cost(kShort) + 1);
  steps(2);
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
  renew();
  (void)send(host(0, kShort));
  steps(2);
  say(ControlType::kCredit, 0, 0, window_cost(kShort));
  steps(2);
  EXPECT_TRUE(alive());
}

TEST_F(LinkFrames, MoreThanAWindowOfEachKind) {
  for (const bool sends : {true, false}) {
    renew();
    OperationPayload payload;
    payload.data = std::span(peers_).first(kShort);
    payload.has_notify = true;
    // Nobody takes what is there: sends wait for receives, writes for room in the inbox.
    if (!sends) payload.ranges = {advertised(host_id_, 0, kShort)};
    for (uint64_t i = 0; i < 300 && alive(); ++i) {
      say(sends ? ControlType::kSendData : ControlType::kWriteData, 1000 + i, i, kShort, Packing::kWhole, &payload);
      step();
    }
    EXPECT_EQ(link_->status().code(), Code::kProtocol) << (sends ? "sends" : "writes");
  }
}

}  // namespace
}  // namespace tcpx::testing
