// Transfers that begin before their receiver has said Go, at a link that is moved step by step: those that it takes, and those that
// it does not want, whose bytes go by. After each the next transfer arrives in its own place.
#include <functional>

#include "tests/support/link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkEager : public LinkTest {
 protected:
  LinkEager() {
    eager_ = true;
    renew();
  }

  /// A write of kLong bytes that has begun.
  void begin_write(uint64_t operation, const std::vector<WireRange>& ranges, Packing packing = Packing::kWhole) {
    OperationPayload payload;
    payload.ranges = ranges;
    say_begun(ControlType::kWrite, operation, 0, &payload, kLong, packing);
  }
  void begin_send(uint64_t operation, uint64_t sequence, uint64_t bytes = kLong, Packing packing = Packing::kWhole) {
    OperationPayload payload;
    say_begun(ControlType::kSend, operation, sequence, &payload, bytes, packing);
  }
  RegisteredMemory peers_memory() {
    if (!sends_from_) sends_from_ = peer_send_->register_memory(peers_.data(), peers_.size(), MemoryType::kHost).value();
    return *sends_from_;
  }
  /// Memory of this end that the plugin does not take.
  WireRange refused() {
    (void)peers_memory();
    fake_.fail_call(Call::kRegister, 1, Status(Code::kPlugin, "register memory", "not this"), 1);
    refused_ = registry_.add(host_.data(), kPart - 1, MemoryType::kHost).value();
    return {registry_.advertise(kConn, refused_, host_.data(), kLong).value().id, 0, kLong};
  }
  /// Bytes of the peer's memory on their way, in transfers of those lengths.
  void move(size_t from, std::initializer_list<size_t> lengths = {kLong}) {
    const RegisteredMemory memory = peers_memory();
    for (const size_t bytes : lengths) {
      ASSERT_TRUE(peer_send_->submit({.memory = memory, .offset = from, .bytes = bytes}).is_ok());
      from += bytes;
    }
  }
  bool has_moved() {
    return drive([&] { return peer_send_->pending() == 0 && peer_send_->in_flight() == 0; });
  }
  /// The link's memory from `to` has the peer's bytes from `from`.
  bool is_there(size_t to, size_t from, size_t bytes = kLong) const {
    return std::equal(peers_.begin() + static_cast<ptrdiff_t>(from), peers_.begin() + static_cast<ptrdiff_t>(from + bytes),
                      host_.begin() + static_cast<ptrdiff_t>(to));
  }
  /// The next frame of that type.
  std::optional<ControlHeader> await(ControlType type) {
    std::optional<ControlHeader> frame;
    (void)drive([&] { return frame.has_value() || (frame = hear(type)).has_value(); });
    return frame;
  }
  /// Of an operation of the peer.
  std::optional<Code> answer_to(uint64_t operation) {
    const auto done = await(ControlType::kDone);
    if (!done || done->operation != operation) return std::nullopt;
    return static_cast<Code>(done->value);
  }
  /// A transfer that comes behind another one is not mixed up with it.
  void expect_next_arrives() {
    begin_write(99, {advertised(host_id_, 0, kLong)});
    move(kNext);
    EXPECT_EQ(answer_to(99), Code::kOk) << link_->flight_record();
    EXPECT_TRUE(is_there(0, kNext));
    EXPECT_TRUE(alive()) << link_->status().to_string();
  }

  static constexpr size_t kNext = 50'000;  // where the bytes of `expect_next_arrives` lie
  std::optional<RegisteredMemory> sends_from_;
  MemoryId refused_{};
};

TEST_F(LinkEager, AWriteThatHasBegunNeedsNoGo) {
  begin_write(5, {advertised(host_id_, kLong, kLong)});
  move(0);
  EXPECT_EQ(answer_to(5), Code::kOk);
  EXPECT_FALSE(hear(ControlType::kGo).has_value());
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

TEST_F(LinkEager, AWriteThatMustBePackedOtherwiseIsAskedForAgain) {
  begin_write(6, {refused()});
  move(0);
  const auto go = await(ControlType::kGo);
  ASSERT_TRUE(go.has_value());
  EXPECT_EQ(go->operation, 6u);
  EXPECT_EQ(go->packing, static_cast<uint8_t>(Packing::kPacked));
  EXPECT_TRUE(has_moved());
  EXPECT_FALSE(is_there(0, 0)) << "those bytes went by";
  say(ControlType::kBegin, 6);
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
  EXPECT_FALSE(hear(ControlType::kGo).has_value());
  EXPECT_FALSE(is_there(0, 0));
  gate.open = true;
  ASSERT_TRUE(await(ControlType::kGo).has_value());
  say(ControlType::kBegin, 5);
  move(0);
  EXPECT_EQ(answer_to(5), Code::kOk);
  EXPECT_TRUE(is_there(0, 0));
  expect_next_arrives();
}

// Its writer has given it up meanwhile, and its bytes have left.
TEST_F(LinkEager, AWriteThatIsGoneWhenItIsAskedForAgain) {
  begin_write(6, {refused()});
  move(0);
  ASSERT_TRUE(await(ControlType::kGo).has_value());
  EXPECT_TRUE(link_->serves(refused_));
  say(ControlType::kCancel, 6, 0, static_cast<uint64_t>(CancelFrame::What::kGone));
  EXPECT_EQ(answer_to(6), Code::kCancelled);
  EXPECT_FALSE(link_->serves(refused_));
  expect_next_arrives();
}

TEST_F(LinkEager, ASendBeginsOnceItsReceiveIsPosted) {
  const OperationId received = receive(host(kLong, kLong));
  step();
  const auto posted = hear(ControlType::kPosted);
  ASSERT_TRUE(posted.has_value());
  EXPECT_EQ(posted->value, 0u);
  EXPECT_EQ(posted->bytes, kLong);
  begin_send(61, 0);
  move(0);
  EXPECT_TRUE(drive([&] { return !pending(received); }));
  EXPECT_TRUE(end_of(received).is_ok());
  EXPECT_TRUE(is_there(kLong, 0));
  EXPECT_FALSE(hear(ControlType::kGo).has_value());
  expect_next_arrives();
}

TEST_F(LinkEager, ASendThatAsksIsToldToGoAndSaysWhenItBegins) {
  const OperationId received = receive(host(kLong, kLong));
  say_offer(61, 0);
  ASSERT_TRUE(await(ControlType::kGo).has_value());
  begin_write(62, {advertised(host_id_, 0, kLong)});  // before the send
  move(kNext);
  say(ControlType::kBegin, 61);
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
  ASSERT_TRUE(hear(ControlType::kPosted).has_value());
  cancel(received);
  EXPECT_EQ(end_of(received).code(), Code::kCancelled);
  step();
  const auto withdrawn = hear(ControlType::kPosted);
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
  ask(ControlType::kRead, 5);
  const TransferId got = receive_at_peer();
  EXPECT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
  const auto ready = hear(ControlType::kReady);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->flags, kBegunFlag);
  EXPECT_EQ(peer_recv_->poll(got).state, TransferState::kDone);
  EXPECT_TRUE(has_peers(host_, kLong));
}

TEST_F(LinkEager, BytesOfAReadThatWasGivenUpGoBy) {
  const Bytes before = host_;
  const OperationId asked = read(host(0, kLong));
  step();
  ASSERT_TRUE(hear(ControlType::kRead).has_value());
  cancel(asked);
  EXPECT_EQ(end_of(asked).code(), Code::kCancelled);
  say_begun(ControlType::kReady, static_cast<uint64_t>(asked), 0);
  move(0);
  EXPECT_TRUE(has_moved());
  EXPECT_EQ(host_, before);
  expect_next_arrives();
}

TEST_F(LinkEager, TheLinkBeginsItsOwn) {
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

TEST_F(LinkEager, ASendWhoseReceiveIsNotPostedAsks) {
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

TEST_F(LinkEager, ItsOwnWriteGoesOnceMoreWhenTheTargetWantsItPacked) {
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
TEST_F(LinkEager, AGoForAWriteThatHasEndedIsAnswered) {
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

TEST_F(LinkEager, WhatWaitsForItsBeginEndsWithTheLink) {
  const OperationId received = receive(host(0, kLong));
  say_offer(61, 0);
  ASSERT_TRUE(await(ControlType::kGo).has_value());
  EXPECT_TRUE(pending(received));
  link_->fail(Status(Code::kPeerGone, "test", "it has gone"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(received).code(), Code::kPeerGone);
}

TEST_F(LinkEager, WhatNoPeerOfOursSays) {
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"a begin of nothing", [&] { say(ControlType::kBegin, 5); }},
      {"a begin of a read that nobody asked", [&] { say(ControlType::kBegin, 5, 1); }},
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
      {"the bytes of a read that nobody asked", [&] { say_begun(ControlType::kReady, 5, 0); }},
      {"the bytes of a read twice",
       [&] {
         const OperationId asked = read(host(0, kLong));
         step();
         cancel(asked);
         for (int i = 0; i < 2; ++i) say_begun(ControlType::kReady, static_cast<uint64_t>(asked), 0);
       }},
      {"ranges for a read of one",
       [&] { say_begun(ControlType::kReady, static_cast<uint64_t>(read(host(0, kLong))), 0, nullptr, kLong, Packing::kRanges); }},
      {"a write of nothing",
       [&] {
         OperationPayload payload;
         payload.ranges = {advertised(host_id_, 0, 0)};
         say_begun(ControlType::kWrite, 5, 0, &payload, 0);
       }},
      {"an end of a write that is not asked for again",
       [&] { say(ControlType::kCancel, 5, 0, static_cast<uint64_t>(CancelFrame::What::kGone)); }},
      {"the same of a send",
       [&] {
         (void)receive(host(0, kLong));
         say_offer(61, 0);
         step();
         say(ControlType::kCancel, 61, 0, static_cast<uint64_t>(CancelFrame::What::kGone));
       }},
      {"a receive posted in ranges", [&] { say(ControlType::kPosted, 0, 0, kLong, Packing::kRanges); }},
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
                                         [&] { say_begun(ControlType::kReady, static_cast<uint64_t>(read(host(0, kLong))), 0); },
                                         [&] { say(ControlType::kPosted, 0, 0, kLong); }, [&] { say(ControlType::kBegin, 5); }};
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
  EXPECT_FALSE(hear(ControlType::kPosted).has_value());
  EXPECT_EQ(hear(ControlType::kWrite)->flags, 0);
}

}  // namespace
}  // namespace tcpx::testing
