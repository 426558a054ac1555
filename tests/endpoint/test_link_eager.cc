// Transfers that begin before their receiver has said Go, at a link that is moved step by step: those that it takes, and those that
// it does not want, whose bytes go by. After each the next transfer arrives in its own place.
#include <functional>

#include "tests/support/eager_link_fixture.h"

namespace tcpx::testing {
namespace {

using LinkEager = EagerLinkTest;

TEST_F(LinkEager, AWriteThatHasBegunNeedsNoGo) {
  begin_write(5, {advertised(host_id_, kLong, kLong)});
  move(0);
  EXPECT_EQ(answer_to(5), Code::kOk);
  EXPECT_FALSE(hear(FrameType::kGo).has_value());
  EXPECT_TRUE(is_there(kLong, 0));
  expect_next_arrives();
}

TEST_F(LinkEager, BytesForASlotThatIsNoneGoBy) {
  const Bytes before = host_;
  begin_write(5, {{.slot = {1, 2}, .offset = 0, .bytes = kLong}});
  EXPECT_EQ(answer_to(5), Code::kNotFound) << "without waiting for them";
  move(0);
  EXPECT_TRUE(has_moved());
  EXPECT_EQ(host_, before);
  expect_next_arrives();
  EXPECT_EQ(link_->stats().bytes_received, kLong) << "only the next";
}

TEST_F(LinkEager, BytesOfEveryShapeGoBy) {
  const auto nowhere = [](std::initializer_list<uint64_t> lengths) {
    std::vector<WireRange> ranges;
    for (const uint64_t bytes : lengths) ranges.push_back({.slot = {1, 2}, .offset = 0, .bytes = bytes});
    return ranges;
  };
  begin_write(5, nowhere({60'000, 0, 40'000}), Packing::kRanges);
  EXPECT_EQ(answer_to(5), Code::kNotFound);
  move(0, {60'000, 40'000});
  begin_write(6, nowhere({60'000, 40'000}), Packing::kPacked);
  EXPECT_EQ(answer_to(6), Code::kNotFound);
  move(0);
  EXPECT_TRUE(has_moved());
  expect_next_arrives();
}

// What is held of it is counted until its bytes have gone by: a peer that says much and sends nothing runs into its window.
TEST_F(LinkEager, WhatGoesByKeepsItsPartOfTheWindow) {
  begin_write(5, {{.slot = {1, 2}, .offset = 0, .bytes = kLong}});
  EXPECT_EQ(answer_to(5), Code::kNotFound);
  EXPECT_GT(link_->arrived_bytes(), 0u);
  move(0);
  EXPECT_TRUE(has_moved());
  EXPECT_TRUE(drive([&] { return link_->arrived_bytes() == 0; }));
}

TEST_F(LinkEager, WhoBeginsEverMoreAndSendsNothingRunsIntoTheWindow) {
  constexpr uint64_t kWindow = kWindowSizes[3], kMost = kWindow / (256 + 32);
  uint64_t said = 0, held = 0;
  for (; said < 2 * kMost && alive(); ++said) {
    begin_write(1000 + said, {{.slot = {1, 2}, .offset = 0, .bytes = kLong}});
    if (said % 64 != 0) continue;
    step();
    if (alive()) held = link_->arrived_bytes();
  }
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
  EXPECT_LE(said, kMost + 65);
  EXPECT_GT(held, kWindow - 65 * (256 + 32));
  EXPECT_LE(held, kWindow);
}

TEST_F(LinkEager, AWriteThatMustBePackedOtherwiseIsAskedForAgain) {
  begin_write(6, {refused()});
  move(0);
  const auto go = await(FrameType::kGo);
  ASSERT_TRUE(go.has_value());
  EXPECT_EQ(go->operation, 6u);
  EXPECT_EQ(go->packing, static_cast<uint8_t>(Packing::kPacked));
  EXPECT_TRUE(has_moved());
  EXPECT_FALSE(is_there(0, 0)) << "those bytes went by";
  steps(3);
  EXPECT_GT(link_->arrived_bytes(), 0u) << "the write has not ended";
  say(FrameType::kBegin, 6);
  move(0);
  EXPECT_EQ(answer_to(6), Code::kOk);
  EXPECT_TRUE(is_there(0, 0));
  expect_next_arrives();
}

TEST_F(LinkEager, AWriteThatComesBeforeTheGpuIsDoneIsAskedForLater) {
  Gate gate;
  const WireRange there = advertised(host_id_, 0, kLong, &gate);
  begin_write(5, {there});
  move(0);
  EXPECT_TRUE(has_moved());
  EXPECT_FALSE(hear(FrameType::kGo).has_value());
  EXPECT_FALSE(is_there(0, 0));
  EXPECT_GT(link_->arrived_bytes(), 0u) << "its announcement is kept";
  gate.open = true;
  ASSERT_TRUE(await(FrameType::kGo).has_value());
  say(FrameType::kBegin, 5);
  move(0);
  EXPECT_EQ(answer_to(5), Code::kOk);
  EXPECT_TRUE(is_there(0, 0));
  expect_next_arrives();
}

// Its writer has given it up meanwhile, and its bytes have left.
TEST_F(LinkEager, AWriteThatIsGoneWhenItIsAskedForAgain) {
  begin_write(6, {refused()});
  move(0);
  ASSERT_TRUE(await(FrameType::kGo).has_value());
  EXPECT_TRUE(link_->serves(refused_));
  say(FrameType::kCancel, 6, 0, static_cast<uint64_t>(CancelFrame::What::kGone));
  EXPECT_EQ(answer_to(6), Code::kCancelled);
  EXPECT_FALSE(link_->serves(refused_));
  expect_next_arrives();
}

TEST_F(LinkEager, ASendBeginsOnceItsReceiveIsPosted) {
  const OperationId received = receive(host(kLong, kLong));
  step();
  const auto posted = hear(FrameType::kPosted);
  ASSERT_TRUE(posted.has_value());
  EXPECT_EQ(posted->value, 0u);
  EXPECT_EQ(posted->bytes, kLong);
  begin_send(61, 0);
  move(0);
  EXPECT_TRUE(drive([&] { return !pending(received); }));
  EXPECT_TRUE(end_of(received).is_ok());
  EXPECT_TRUE(is_there(kLong, 0));
  EXPECT_FALSE(hear(FrameType::kGo).has_value());
  expect_next_arrives();
}

TEST_F(LinkEager, ASendThatAsksIsToldToGoAndSaysWhenItBegins) {
  const OperationId received = receive(host(kLong, kLong));
  say_offer(61, 0);
  ASSERT_TRUE(await(FrameType::kGo).has_value());
  begin_write(62, {advertised(host_id_, 0, kLong)});  // before the send
  move(kNext);
  say(FrameType::kBegin, 61);
  move(0);
  EXPECT_TRUE(drive([&] { return !pending(received); }));
  EXPECT_TRUE(end_of(received).is_ok());
  EXPECT_TRUE(is_there(kLong, 0));
  EXPECT_TRUE(is_there(0, kNext));
  EXPECT_TRUE(alive());
}

TEST_F(LinkEager, BytesForAReceiveThatWasGivenUpGoBy) {
  const Bytes before = host_;
  const OperationId received = receive(host(kLong, kLong));
  step();
  ASSERT_TRUE(hear(FrameType::kPosted).has_value());
  cancel(received);
  EXPECT_EQ(end_of(received).code(), Code::kCancelled);
  step();
  const auto withdrawn = hear(FrameType::kPosted);
  ASSERT_TRUE(withdrawn.has_value());
  EXPECT_EQ(withdrawn->bytes, 0u);
  begin_send(61, 0);
  move(0);
  EXPECT_EQ(answer_to(61), Code::kCancelled);
  EXPECT_TRUE(has_moved());
  EXPECT_EQ(host_, before);
  expect_next_arrives();
}

TEST_F(LinkEager, AReadIsAnsweredByItsBytes) {
  ask(FrameType::kRead, 5);
  const TransferId got = receive_at_peer();
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  const auto ready = hear(FrameType::kReady);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->flags, kBegunFlag);
  EXPECT_EQ(peer_recv_->poll(got).state, TransferState::kDone);
  EXPECT_TRUE(has_peers(host_, kLong));
}

// Its reader cannot take them as they are.
TEST_F(LinkEager, AReadIsAnsweredAsItWasAsked) {
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, kLong)};
  say(FrameType::kRead, 5, 0, kLong, Packing::kPacked, &payload);
  const auto ready = await(FrameType::kReady);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->packing, static_cast<uint8_t>(Packing::kPacked));
}

TEST_F(LinkEager, AReceiveOfLongRangesIsNotTold) {
  std::vector<HeldRange> ranges = one(host(0, kPart));
  ranges.push_back(device(0, kPart));
  const OperationId received = start(OperationKind::kRecv, {.ranges = std::move(ranges)});
  step();
  EXPECT_FALSE(hear(FrameType::kPosted).has_value()) << "how its sender cuts its own is not known";
  cancel(received);
  EXPECT_EQ(end_of(received).code(), Code::kCancelled);
  step();
  EXPECT_FALSE(hear(FrameType::kPosted).has_value()) << "nothing is to be taken back";
}

TEST_F(LinkEager, BytesOfAReadThatWasGivenUpGoBy) {
  const Bytes before = host_;
  const OperationId asked = read(host(0, kLong));
  step();
  ASSERT_TRUE(hear(FrameType::kRead).has_value());
  cancel(asked);
  EXPECT_EQ(end_of(asked).code(), Code::kCancelled);
  say_begun(FrameType::kReady, static_cast<uint64_t>(asked), 0);
  move(0);
  EXPECT_TRUE(has_moved());
  EXPECT_EQ(host_, before);
  expect_next_arrives();
}

// The window bounds reads that wait; a peer that gives credit and no answer would have those pile up that were given up.
TEST_F(LinkEager, ReadsThatWereGivenUpAndAreNeverAnsweredEndTheLink) {
  constexpr size_t kRanges = 16384, kBytes = 6;
  for (int i = 0; i < 100 && alive(); ++i) {
    Start many;
    for (size_t at = 0; at < kRanges; ++at) {
      many.ranges.push_back(host(at * kBytes, kBytes));
      many.remote.push_back({.slot = {0, 1}, .offset = at * kBytes, .bytes = kBytes});
    }
    const OperationId asked = start(OperationKind::kRead, std::move(many));
    ASSERT_TRUE(await(FrameType::kRead).has_value());
    cancel(asked);
    EXPECT_EQ(end_of(asked).code(), Code::kCancelled);
    say(FrameType::kCredit, static_cast<uint64_t>(Window::kRestOffers), 0, kRanges * 32);
    steps(2);
  }
  EXPECT_EQ(link_->status().code(), Code::kProtocol);
}

TEST_F(LinkEager, WhatWaitsForItsBeginEndsWithTheLink) {
  const OperationId received = receive(host(0, kLong));
  say_offer(61, 0);
  ASSERT_TRUE(await(FrameType::kGo).has_value());
  EXPECT_TRUE(pending(received));
  link_->fail(Status(Code::kPeerGone, "test", "it has gone"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(received).code(), Code::kPeerGone);
}

TEST_F(LinkEager, WhatNoPeerOfOursSays) {
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"a begin of nothing", [&] { say(FrameType::kBegin, 5); }},
      {"a begin of a read that nobody asked", [&] { say(FrameType::kBegin, 5, 1); }},
      {"a send that begins for no receive", [&] { begin_send(61, 0); }},
      {"a send that begins with other bytes than were posted",
       [&] {
         (void)receive(host(0, kLong));
         begin_send(61, 0, kLong - 1);
       }},
      {"a send that begins in another packing than was posted",
       [&] {
         (void)receive(host(0, kLong));
         begin_send(61, 0, kLong, Packing::kPacked);
       }},
      {"the bytes of a read that nobody asked", [&] { say_begun(FrameType::kReady, 5, 0); }},
      {"the bytes of a read twice",
       [&] {
         const OperationId asked = read(host(0, kLong));
         step();
         cancel(asked);
         for (int i = 0; i < 2; ++i) say_begun(FrameType::kReady, static_cast<uint64_t>(asked), 0);
       }},
      {"the bytes of a read that was refused",
       [&] {
         const OperationId asked = read(host(0, kLong));
         step();
         cancel(asked);
         say_done(asked, Code::kNotFound);
         say_begun(FrameType::kReady, static_cast<uint64_t>(asked), 0);
       }},
      {"ranges for a read of one",
       [&] { say_begun(FrameType::kReady, static_cast<uint64_t>(read(host(0, kLong))), 0, nullptr, kLong, Packing::kRanges); }},
      {"a write of nothing",
       [&] {
         OperationPayload payload;
         payload.ranges = {advertised(host_id_, 0, 0)};
         say_begun(FrameType::kWrite, 5, 0, &payload, 0);
       }},
      {"an end of a write that is not asked for again",
       [&] { say(FrameType::kCancel, 5, 0, static_cast<uint64_t>(CancelFrame::What::kGone)); }},
      {"the same of a send",
       [&] {
         (void)receive(host(0, kLong));
         say_offer(61, 0);
         step();
         say(FrameType::kCancel, 61, 0, static_cast<uint64_t>(CancelFrame::What::kGone));
       }},
      {"a receive posted in ranges", [&] { say(FrameType::kPosted, 0, 0, kLong, Packing::kRanges); }},
  };
  for (const auto& [what, say_it] : cases) {
    renew();
    say_it();
    steps(3);
    EXPECT_EQ(link_->status().code(), Code::kProtocol) << what << ": " << link_->status().to_string();
    EXPECT_TRUE(drive([&] { return link_->closed(); })) << what;
  }
}

// Over a plugin that must not be sent what nobody waits for.
TEST_F(LinkEager, NothingBeginsByItselfOnALinkThatIsNotEager) {
  eager_ = false;
  const std::function<void()> cases[] = {[&] { begin_write(5, {advertised(host_id_, 0, kLong)}); },
                                         [&] {
                                           (void)receive(host(0, kLong));
                                           begin_send(61, 0);
                                         },
                                         [&] {
                                           cancel(receive(host(0, kLong)));
                                           begin_send(61, 0);
                                         },
                                         [&] { say_begun(FrameType::kReady, static_cast<uint64_t>(read(host(0, kLong))), 0); },
                                         [&] { say(FrameType::kPosted, 0, 0, kLong); }, [&] { say(FrameType::kBegin, 5); }};
  for (const auto& say_it : cases) {
    renew();
    say_it();
    steps(3);
    EXPECT_EQ(link_->status().code(), Code::kProtocol) << link_->status().to_string();
  }
  renew();
  (void)receive(host(0, kLong));
  (void)write(host(0, kLong));
  steps(2);
  EXPECT_FALSE(hear(FrameType::kPosted).has_value());
  EXPECT_EQ(hear(FrameType::kWrite)->flags, 0);
}

}  // namespace
}  // namespace tcpx::testing
