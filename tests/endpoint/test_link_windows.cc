// Cost of inline messages in the windows of both ends of one link: however a message ends, its part comes back, or the
// good ones behind it would wait for ever.
#include "tests/support/link_fixture.h"

namespace tcpx::testing {
namespace {

/// Steps in which a whole window gets through the sockets.
constexpr int kSettle = 100;

class LinkWindows : public LinkTest {
 protected:
  /// A short message of each kind still gets through to the link.
  void expect_good_ones_pass() {
    const OperationId received = receive(host(0, 8));
    say_send(receives_ - 1, std::span(peers_).first(8));
    say_write(99, advertised(host_id_, 100, 8), std::span(peers_).first(8));
    steps(3);
    EXPECT_TRUE(end_of(received).is_ok());
    const auto answer = hear(FrameType::kDone);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->operation, 99u);
    EXPECT_EQ(answer->value, 0u);
    EXPECT_TRUE(alive()) << link_->status().to_string();
  }
  /// The link sends and writes a short message at once.
  void expect_good_ones_leave() {
    heard_.frames.clear();
    const OperationId sent = send(host(0, kShort));
    const OperationId written = write(host(0, kShort));
    step();
    EXPECT_TRUE(hear(FrameType::kSendData).has_value()) << link_->flight_record();
    const auto heard = hear(FrameType::kWriteData);
    ASSERT_TRUE(heard.has_value()) << link_->flight_record();
    say(FrameType::kDone, heard->operation);
    step();
    EXPECT_TRUE(end_of(sent).is_ok());
    EXPECT_TRUE(end_of(written).is_ok());
  }
  std::span<const std::byte> data() { return std::span(peers_).first(kShort); }
  /// More rounds than the window has room for, if each kept its part; then good ones still pass.
  template <class Round>
  void give_back_many(Round round) {
    for (int i = 0; i < kMany && !HasFailure(); ++i) round(i);
    expect_good_ones_pass();
  }
  /// A receive and the send of the peer that it meets. In every second round the send is there first.
  template <class Say>
  OperationId meet(int round, HeldRange range, Say say_it) {
    const bool send_first = round % 2 == 0;
    if (send_first) say_it(receives_), step();
    const OperationId received = receive(std::move(range));
    if (!send_first) say_it(receives_ - 1);
    return received;
  }
  OperationId meet_short(int round, HeldRange range) {
    return meet(round, std::move(range), [&](uint64_t sequence) { say_send(sequence, data()); });
  }
  /// As many short sends as the window takes.
  std::vector<OperationId> fill_window() {
    std::vector<OperationId> sends;
    for (int i = 0; i < kWindowful; ++i) sends.push_back(send(host(0, kShort)));
    return sends;
  }
  /// The peer hears that a send that was not offered does not come.
  void expect_told_cancelled(uint64_t sequence) {
    const auto cancelled = hear(FrameType::kCancel);
    ASSERT_TRUE(cancelled.has_value());
    EXPECT_EQ(cancelled->value, sequence);
    EXPECT_EQ(cancelled->bytes, 0u) << "it was not offered, so no answer is waited for";
  }
};

TEST_F(LinkWindows, ARefusedShortWriteGivesItsPartBack) {
  give_back_many([&](int i) {
    say_write(5, {.slot = {0, 12345}, .offset = 0, .bytes = kShort}, data());
    step();
    const auto answer = hear(FrameType::kDone);
    ASSERT_TRUE(answer.has_value()) << i;
    EXPECT_NE(answer->value, 0u);
  });
}

TEST_F(LinkWindows, AShortWriteGivesItsPartBack) {
  for (const MemoryId memory : {host_id_, device_id_}) {
    give_back_many([&](int i) {
      say_write(5, advertised(memory, 0, kShort), data());
      steps(2);
      ASSERT_TRUE(hear(FrameType::kDone).has_value()) << i;
    });
  }
}

TEST_F(LinkWindows, ANotificationGivesItsPartBackWhenThereWasRoomForIt) {
  const std::string text(16000, 't');
  for (int i = 0; i < kMany && !HasFailure(); ++i) {
    ASSERT_GE(room_[1], window_cost(1 + text.size()));
    room_[1] -= window_cost(1 + text.size());
    say_raw(make_header(FrameType::kNotify), payload_of(NotifyFrame{.notify = {"n", text}}));
    step();
    if (i % 4 == 3) {
      EXPECT_EQ(notified(), 4u);
    }
  }
  // Of those that wait for the application the window is kept.
  for (int i = 0; i < 8; ++i) say_raw(make_header(FrameType::kNotify), payload_of(NotifyFrame{.notify = {"n", text}})), step();
  EXPECT_EQ(notified(), 4u);
  step();
  EXPECT_EQ(notified(), 4u);
  step();
  EXPECT_TRUE(alive());
}

TEST_F(LinkWindows, AShortSendGivesItsPartBackWhoeverComesFirst) {
  for (const bool on_gpu : {false, true}) {
    give_back_many([&](int i) {
      const OperationId received = meet_short(i, on_gpu ? device(0, kShort) : host(0, kShort));
      steps(2);
      ASSERT_TRUE(end_of(received).is_ok());
    });
  }
}

TEST_F(LinkWindows, AnAnnouncedSendGivesItsPartBackWhoeverComesFirst) {
  constexpr size_t kBytes = kMaxWireRanges;  // ranges of one byte, of whose lengths the window takes an eighth of a MiB
  const RegisteredMemory memory = peer_send_->register_memory(peers_.data(), kBytes, MemoryType::kHost).value();
  OperationPayload payload;
  payload.lengths.assign(kBytes, 1);
  give_back_many([&](int i) {
    const OperationId received = meet(i, host(0, kBytes), [&](uint64_t sequence) {
      put(payload, i % 3 == 0 ? std::optional<NotifyMsg>({"n", "t"}) : std::nullopt);
      const WindowUse use = use_of(FrameType::kSend, kBytes, payload, kInline);
      ASSERT_GE(room_[use.window], use.bytes) << "a peer would wait here for ever";
      room_[use.window] -= use.bytes;
      say(FrameType::kSend, 6, sequence, kBytes, Packing::kRanges, &payload);
    });
    steps(10);
    ASSERT_TRUE(hear(FrameType::kGo).has_value()) << link_->flight_record();
    const auto sent = peer_send_->submit({.memory = memory, .bytes = kBytes});
    ASSERT_TRUE(sent.is_ok()) << sent.status().to_string();
    ASSERT_TRUE(drive([&] { return !pending(received) && peer_send_->pending() == 0; }));
    ASSERT_EQ(peer_send_->poll(*sent).state, TransferState::kDone);
    ASSERT_TRUE(end_of(received).is_ok());
    EXPECT_EQ(notified(), i % 3 == 0 ? 1u : 0u);
  });
}

TEST_F(LinkWindows, AShortSendOfAnotherSizeGivesItsPartBackWhoeverComesFirst) {
  give_back_many([&](int i) {
    const OperationId received = meet_short(i, host(0, 8));
    step();
    ASSERT_EQ(end_of(received).code(), Code::kMismatch);
  });
}

TEST_F(LinkWindows, AShortSendWhoseReceiveWasGivenUpGivesItsPartBack) {
  give_back_many([&](int) {
    const OperationId received = receive(host(0, kShort));
    cancel(received);
    ASSERT_EQ(end_of(received).code(), Code::kCancelled);
    say_send(receives_ - 1, data());
    step();
  });
}

TEST_F(LinkWindows, AShortSendGivesItsPartBackWhoseReceiveIsGivenUpBeforeItBegan) {
  Gate never;
  give_back_many([&](int) {
    const OperationId received = start(OperationKind::kRecv, {.ranges = one(device(0, kShort)), .after = &never});
    say_send(receives_ - 1, data());
    step();
    ASSERT_TRUE(pending(received));
    cancel(received);
    ASSERT_EQ(end_of(received).code(), Code::kCancelled);
    step();
  });
}

/// Fates of a short message while it is read from the GPU.
class LinkWindowsCopies : public LinkWindows {
 protected:
  OperationId start_one(int number) { return number % 2 == 0 ? send(device(0, kShort)) : write(device(0, kShort)); }
  /// A send that does not come leaves its place empty, which the peer must know.
  void expect_told(int number) {
    if (number % 2 == 0) return expect_told_cancelled(sends_ - 1);
    EXPECT_FALSE(hear(FrameType::kCancel).has_value()) << number;
  }
};

TEST_F(LinkWindowsCopies, AMessageThatIsGivenUpMeanwhileTakesNothing) {
  for (int i = 0; i < 2 * kMany && !HasFailure(); ++i) {
    copier_.hold();
    const OperationId id = start_one(i);
    step();
    cancel(id);
    EXPECT_TRUE(pending(id)) << "the GPU reads its memory";
    copier_.release();
    step();
    ASSERT_EQ(end_of(id).code(), Code::kCancelled);
    expect_told(i);
    EXPECT_FALSE(hear(FrameType::kSendData).has_value());
  }
  expect_good_ones_leave();
}

TEST_F(LinkWindowsCopies, AMessageThatCannotBeReadTakesNothing) {
  for (int i = 0; i < 2 * kMany && !HasFailure(); ++i) {
    copier_.fail_query = copy_failure();
    const OperationId id = start_one(i);
    step();
    copier_.fail_query = Status::ok();
    ASSERT_EQ(end_of(id).code(), Code::kCuda);
    step();
    expect_told(i);
  }
  expect_good_ones_leave();
}

TEST_F(LinkWindowsCopies, SlotsComeBackWhateverBecomesOfTheMessage) {
  for (int i = 0; i < 3 * kMany && !HasFailure(); ++i) {
    const OperationId received = receive(device(0, kShort));
    if (i % 3 == 0) copier_.hold();
    if (i % 3 == 1) copier_.fail_query = copy_failure();
    say_send(receives_ - 1, data());
    step();
    if (i % 3 == 0) cancel(received);
    copier_.release();
    copier_.fail_query = Status::ok();
    steps(2);
    const Code wanted = i % 3 == 0 ? Code::kCancelled : i % 3 == 1 ? Code::kCuda : Code::kOk;
    ASSERT_EQ(end_of(received).code(), wanted) << i;
  }
  const OperationId last = receive(device(0, kShort));
  say_send(receives_ - 1, data());
  steps(2);
  EXPECT_TRUE(end_of(last).is_ok());
}

TEST_F(LinkWindows, MessagesFromTheGpuGiveTheirSlotsBack) {
  for (int i = 0; i < kMany && !HasFailure(); ++i) {
    const OperationId sent = send(device(0, kShort));
    steps(3);
    ASSERT_TRUE(end_of(sent).is_ok()) << i;
    ASSERT_TRUE(hear(FrameType::kSendData).has_value());
    say(FrameType::kCredit, 0, 0, window_cost(kShort));
  }
}

// Sends of several threads may have been posted in another order there.
TEST_F(LinkWindows, AShortSendThatWaitsForTheWindowIsOfferedSoon) {
  const std::vector<OperationId> sends = fill_window();
  const OperationId late = send(host(0, kShort));
  steps(kSettle);
  for (const OperationId id : sends) ASSERT_TRUE(end_of(id).is_ok());
  const auto offered = hear(FrameType::kSend);
  ASSERT_TRUE(offered.has_value());
  EXPECT_EQ(offered->value, sends.size());
  EXPECT_TRUE(pending(late));
}

TEST_F(LinkWindows, AShortWriteWaitsForTheWindowAndLeavesWithTheCredit) {
  const uint64_t each = 64 + kShort + 32;  // with the range that it names
  for (uint64_t i = 0; i < kWindowSizes[1] / each; ++i) (void)write(host(0, kShort));
  steps(kSettle);
  heard_.frames.clear();
  const OperationId late = write(host(0, kShort));
  steps(20);
  EXPECT_FALSE(hear(FrameType::kWriteData).has_value());
  EXPECT_FALSE(hear(FrameType::kWrite).has_value());
  say(FrameType::kCredit, 0, 0, 0);
  steps(2);
  EXPECT_FALSE(hear(FrameType::kWriteData).has_value()) << "credit for sends is none for writes";
  say(FrameType::kCredit, 1, 0, each);
  steps(2);
  const auto heard = hear(FrameType::kWriteData);
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->operation, static_cast<uint64_t>(late));
}

// Untold, the peer would have a receive that waits for its deadline, and every later one would meet the wrong send.
TEST_F(LinkWindows, ASendGivenUpWhileTheWindowIsShutIsToldToThePeer) {
  const size_t before = fill_window().size();
  const OperationId late = send(host(0, kShort));
  cancel(late);
  EXPECT_EQ(end_of(late).code(), Code::kCancelled);
  steps(kSettle);
  expect_told_cancelled(before);
}

TEST_F(LinkWindows, ASendGivenUpWhileItWaitsForTheGpuIsToldToThePeer) {
  Gate never;
  const OperationId late = start(OperationKind::kSend, {.ranges = one(device(0, kShort)), .after = &never});
  step();
  cancel(late);
  EXPECT_EQ(end_of(late).code(), Code::kCancelled);
  step();
  expect_told_cancelled(0);
}

TEST_F(LinkWindows, ASendWhoseGpuWorkFailsIsToldToThePeer) {
  Gate fails{.open = false, .failure = copy_failure()};
  const OperationId late = start(OperationKind::kSend, {.ranges = one(device(0, kShort)), .after = &fails});
  steps(2);
  EXPECT_EQ(end_of(late).code(), Code::kCuda);
  expect_told_cancelled(0);
}

}  // namespace
}  // namespace tcpx::testing
