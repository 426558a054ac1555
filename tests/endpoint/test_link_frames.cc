// False frames of a peer, at a link that is moved step by step: of each frame the ones that lie a little.
#include <functional>

#include "tests/support/link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkFrames : public LinkTest {
 protected:
  /// The link has ended for what the peer said, and so have its operations.
  void expect_refused(std::initializer_list<OperationId> operations = {}) {
    steps(3);
    EXPECT_EQ(link_->status().code(), Code::kProtocol) << link_->status().to_string();
    EXPECT_TRUE(drive([&] { return link_->closed(); }));
    for (const OperationId id : operations) EXPECT_EQ(end_of(id).code(), Code::kProtocol);
  }
  void say_read_data(OperationId id, size_t bytes) {
    say_raw(make_header(FrameType::kReadData, static_cast<uint64_t>(id), 0, bytes), std::span(peers_).first(bytes));
  }
};

TEST_F(LinkFrames, WhatBelongsToNothingThatIsOpen) {
  constexpr uint32_t kHuge = ~uint32_t{0};
  const OperationCounts counts{
      .lengths = kHuge, .ranges = kHuge, .notify_count = 0xffff, .notify_name_bytes = 0xffff, .notify_text_bytes = kHuge};
  FrameHeader foreign = make_header(FrameType::kSend);
  foreign.magic = 0x1234;
  OperationPayload nothing;
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"a go for nothing", [&] { say(FrameType::kGo, 12345); }},
      {"a go for a read that nobody asked", [&] { say(FrameType::kGo, 1, 1); }},
      {"credit for a window that is none", [&] { say(FrameType::kCredit, kWindows, 0, 0); }},
      {"the same sequence twice",
       [&] {
         for (int i = 0; i < 2; ++i) say(FrameType::kSendData, 1, 77, 0, Packing::kWhole, &nothing);
       }},
      {"one cancelled twice",
       [&] {
         for (int i = 0; i < 2; ++i) say(FrameType::kCancel, 1, 500);
       }},
      {"a read asked for twice",
       [&] {
         for (int i = 0; i < 2; ++i) ask(FrameType::kRead, 5);
       }},
      {"huge counts",
       [&] { say_raw(make_header(FrameType::kWrite, 1, 0, ~uint64_t{0}), std::as_bytes(std::span(&counts, 1))); }},
      {"a notification too long by one byte",
       [&] {
         say_raw(make_header(FrameType::kNotify), Bytes(sizeof(uint32_t) + 1 + kMaxNotifyTextBytes));
         steps(100);
       }},
      {"a text too long by one byte",
       [&] {
         put(nothing, NotifyMsg{.name = "n", .msg = std::string(kMaxNotifyTextBytes + 1, 't')});
         say(FrameType::kSendData, 1, 0, 0, Packing::kWhole, &nothing);
         steps(100);
       }},
      {"no frame", [&] { say_raw(foreign); }},
  };
  for (const auto& [what, say_it] : cases) {
    SCOPED_TRACE(what);
    renew();
    say_it();
    expect_refused();
  }
}

// The excess over the answer was once read from behind it, and written to the reader's memory.
TEST_F(LinkFrames, AReadAnsweredWithAnotherNumberOfBytes) {
  const Bytes host_before = host_, device_before = device_;
  for (const bool on_gpu : {false, true}) {
    for (const size_t bytes : {size_t{0}, size_t{1}, kShort - 1, kShort + 1, size_t{65536}}) {
      renew();
      const OperationId asked = read(on_gpu ? device(100, kShort) : host(100, kShort));
      step();
      ASSERT_TRUE(hear(FrameType::kRead).has_value());
      say_read_data(asked, bytes);
      expect_refused({asked});
      EXPECT_EQ(host_, host_before) << bytes;
      EXPECT_EQ(device_, device_before) << bytes;
    }
  }
}

// Its bytes would have no checksum: with checksums a short message takes a lane, too.
TEST_F(LinkFrames, InlineDataOnAConnectionWithChecksums) {
  const auto data = std::span(peers_).first(kShort);
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"a send", [&] { say_send(0, data); }},
      {"a write", [&] { say_write(7, advertised(host_id_, 0, kShort), data); }},
      {"the answer to a read", [&] { say_read_data(read(host(0, kShort)), kShort); }},
  };
  sum_key_ = std::make_shared<const ByteSumKey>(1);
  for (const auto& [what, say_it] : cases) {
    SCOPED_TRACE(what);
    renew();
    say_it();
    expect_refused();
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
  EXPECT_TRUE(has_peers(host_, kShort) && has_peers(device_, kShort));
  say_read_data(first, 17);  // once more: of nothing that is open
  steps(2);
  EXPECT_TRUE(alive());
  EXPECT_TRUE(has_peers(host_, kShort));
}

TEST_F(LinkFrames, ReadDataBehindReady) {
  const OperationId asked = read(host(0, kShort));
  step();
  say_of(asked, FrameType::kReady);
  say_read_data(asked, kShort);
  expect_refused({asked});
}

TEST_F(LinkFrames, ReadyTwice) {
  const OperationId asked = read(host(0, kLong));
  step();
  for (int i = 0; i < 2; ++i) say_of(asked, FrameType::kReady);
  expect_refused({asked});
}

TEST_F(LinkFrames, ReadyForASend) {
  const OperationId sent = send(host(0, kLong));
  step();
  say_of(sent, FrameType::kReady);
  expect_refused({sent});
}

TEST_F(LinkFrames, ReadDataForAWrite) {
  for (const size_t bytes : {size_t{kShort}, kLong}) {
    renew();
    const OperationId written = write(host(0, bytes));
    steps(2);
    say_read_data(written, kShort);
    expect_refused({written});
  }
}

TEST_F(LinkFrames, ReadDataForAReceive) {
  const OperationId received = receive(host(0, kShort));
  step();
  say_read_data(received, kShort);
  expect_refused({received});
}

TEST_F(LinkFrames, AGoTwice) {
  const OperationId sent = send(host(0, kLong));
  step();
  for (int i = 0; i < 2; ++i) say_of(sent, FrameType::kGo);
  expect_refused({sent});
}

// The value tells whose operation it is: 1 of the peer's own, 0 of this end's.
TEST_F(LinkFrames, AGoOfTheWrongEnd) {
  const OperationId sent = send(host(0, kLong));
  step();
  say_of(sent, FrameType::kGo, 1);
  expect_refused({sent});
  renew();
  ask(FrameType::kRead, 5);
  steps(2);
  const auto ready = hear(FrameType::kReady);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->operation, 5u);
  say(FrameType::kGo, 5, 0);
  expect_refused();
}

// The operation had no phase left in which anything would have ended it.
TEST_F(LinkFrames, AVectorThatIsToTravelAsAWhole) {
  std::vector<HeldRange> two = one(host(0, kLong));
  two.push_back(host(kLong, kLong));
  const OperationId sent = start(OperationKind::kSend, {.ranges = std::move(two)});
  step();
  say_of(sent, FrameType::kGo);
  expect_refused({sent});
}

TEST_F(LinkFrames, AReadOfThePeerGoesWhenItSaysSo) {
  ask(FrameType::kRead, 5);
  steps(2);
  ASSERT_TRUE(hear(FrameType::kReady).has_value());
  steps(20);
  EXPECT_EQ(fake_.calls(Call::kSend), 0u) << "the peer may not have posted its receive";
  const TransferId got = receive_at_peer();
  say(FrameType::kGo, 5, 1);
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  EXPECT_EQ(peer_recv_->poll(got).state, TransferState::kDone);
  EXPECT_TRUE(has_peers(host_, kLong));
  EXPECT_TRUE(alive());
}

// The link says whose it is in the same way.
TEST_F(LinkFrames, TheLinksOwnGoSaysWhoseOperationItIs) {
  (void)receive(host(0, kLong));
  say_offer(61, 0);
  steps(2);
  auto go = hear(FrameType::kGo);
  ASSERT_TRUE(go.has_value());
  EXPECT_EQ(go->operation, 61u);
  EXPECT_EQ(go->value, 0u) << "of the peer's send";
  const OperationId asked = read(host(kLong, kLong));
  step();
  say_of(asked, FrameType::kReady);
  steps(2);
  go = hear(FrameType::kGo);
  ASSERT_TRUE(go.has_value());
  EXPECT_EQ(go->operation, static_cast<uint64_t>(asked));
  EXPECT_EQ(go->value, 1u) << "of this end's read";
}

// Each range of each slot, for as long as the peer may read.
TEST_F(LinkFrames, AReadOfThePeerHoldsTheRegionsOfAllItsRanges) {
  const MemoryId part = registry_.add(host_.data() + kLong, kLong, MemoryType::kHost).value();
  const WireRange whole = advertised(host_id_, 0, kPart);
  const WireRange of_part{registry_.advertise(kConn, part, host_.data() + kLong, kLong).value().id, 0, kLong / 4};
  OperationPayload payload;
  payload.ranges = {{whole.slot, 0, kLong / 4}, of_part, of_part, {whole.slot, kLong, kLong / 4}};
  say(FrameType::kRead, 5, 0, kLong, Packing::kWhole, &payload);
  steps(2);
  ASSERT_TRUE(hear(FrameType::kReady).has_value());
  for (const MemoryId region : {host_id_, part})
    EXPECT_EQ(registry_.remove(region, Deadline(TimePoint{})).status().code(), Code::kTimeout);
  say(FrameType::kCancel, 5);
  steps(2);
  for (const MemoryId region : {host_id_, part}) EXPECT_TRUE(registry_.remove(region, Deadline(TimePoint{})).is_ok());
}

TEST_F(LinkFrames, AReadOfThePeerIsWithdrawn) {
  ask(FrameType::kRead, 5);
  say(FrameType::kCancel, 5);
  steps(2);
  EXPECT_TRUE(alive());
  EXPECT_FALSE(hear(FrameType::kDone).has_value());
  const auto removed = registry_.remove(host_id_, Deadline(TimePoint{}));
  EXPECT_TRUE(removed.is_ok()) << "held for a read that is no more: " << removed.status().to_string();
}

TEST_F(LinkFrames, ASendOfThePeerIsWithdrawnAndItsPlaceStaysEmpty) {
  say_offer(61, 0);
  say(FrameType::kCancel, 61, 0, 1);
  steps(2);
  const auto answer = hear(FrameType::kDone);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->operation, 61u);
  EXPECT_EQ(answer->value, 14u) << "TCPX_E_CANCELLED";
  const OperationId received = receive(host(0, kLong));
  step();
  EXPECT_EQ(end_of(received).code(), Code::kCancelled);
  EXPECT_TRUE(alive());
}

TEST_F(LinkFrames, AWithdrawalOfAnotherSend) {
  for (uint64_t i = 0; i < 2; ++i) say_offer(61 + i, i);
  say(FrameType::kCancel, 61, 1, 1);  // the number of one, the place of the other
  expect_refused();
}

TEST_F(LinkFrames, AWithdrawalOfASendThatCameWithItsData) {
  for (const uint64_t offered : {1, 0}) {  // and one that says that it never came
    renew();
    say_send(0, std::span(peers_).first(8));
    say(FrameType::kCancel, 1000, 0, offered);
    expect_refused();
  }
}

TEST_F(LinkFrames, ADoneForAReceive) {
  for (const bool moves : {false, true}) {
    renew();
    const OperationId received = receive(host(0, kLong));
    if (moves) say_offer(61, 0);
    step();
    say_done(received);
    expect_refused({received});
  }
}

TEST_F(LinkFrames, AGoodAnswerToWhatWasOnlyOffered) {
  const Bytes before = host_;
  for (const size_t bytes : {size_t{kShort}, kLong}) {
    for (const OperationKind kind : {OperationKind::kSend, OperationKind::kWrite, OperationKind::kRead}) {
      if (bytes == kShort && kind != OperationKind::kRead) continue;  // has left with its data
      SCOPED_TRACE(name_of(kind));
      renew();
      const OperationId asked = kind == OperationKind::kSend ? send(host(0, bytes)) : write(host(0, bytes), kind);
      step();
      say_done(asked);
      expect_refused({asked});
      EXPECT_EQ(host_, before);
    }
  }
}

// A transfer of no bytes has no ranges to cut.
TEST_F(LinkFrames, ASendOfNothingThatIsNotInline) {
  const OperationId received = receive(host(0, 0));
  OperationPayload payload;
  say(FrameType::kSend, 1, 0, 0, Packing::kPacked, &payload);
  expect_refused({received});
}

TEST_F(LinkFrames, CreditBeyondWhatIsOwed) {
  for (uint64_t window = 0; window < std::size(kWindowSizes); ++window) {
    renew();
    say(FrameType::kCredit, window, 0, 1);
    expect_refused();
  }
  for (const uint64_t beyond : {1, 0}) {
    renew();
    (void)send(host(0, kShort));
    steps(2);
    say(FrameType::kCredit, 0, 0, window_cost(kShort) + beyond);
    steps(2);
    EXPECT_EQ(link_->status().code(), beyond == 0 ? Code::kOk : Code::kProtocol);
  }
}

// The inbox has room for four, and the window for three more.
TEST_F(LinkFrames, MoreLongNotificationsThanTheWindow) {
  const Bytes payload = payload_of(NotifyFrame{.notify = {"n", std::string(kMaxNotifyTextBytes, 't')}});
  const auto say_one = [&] {
    say_raw(make_header(FrameType::kNotify), payload);
    steps(100);
  };
  for (int i = 0; i < 7; ++i) say_one();
  EXPECT_TRUE(alive()) << link_->status().to_string();
  say_one();
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
  EXPECT_EQ(notified(), 4u);
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
      say(sends ? FrameType::kSendData : FrameType::kWriteData, 1000 + i, i, kShort, Packing::kWhole, &payload);
      step();
    }
    EXPECT_EQ(link_->status().code(), Code::kProtocol) << (sends ? "sends" : "writes");
  }
}

}  // namespace
}  // namespace tcpx::testing
