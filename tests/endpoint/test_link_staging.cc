// The first packed transfer of a connection needs a staging buffer, which the driver takes its time to make: the transfer waits, and
// others are served. The GPU is a stand-in.
#include "tests/support/counting_memory_ops.h"
#include "tests/support/eager_link_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

/// Allocates GPU memory when the test lets it.
class SlowlyAllocatingOps : public CountingMemoryOps {
 public:
  using CountingMemoryOps::CountingMemoryOps;
  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override {
    EXPECT_TRUE(wait_until([this] { return !held_; }));
    if (refuses) return Status(Code::kExhausted, "allocate GPU memory", "the test refuses");
    return CountingMemoryOps::allocate_device(device, bytes);
  }
  void hold() { held_ = true; }
  void release() { held_ = false; }

  std::atomic<bool> refuses = false;

 private:
  std::atomic<bool> held_ = false;
};

class LinkStaging : public EagerLinkTest {
 protected:
  LinkStaging() { make(false); }
  ~LinkStaging() override {
    gpu_.release();
    link_.reset();
    unmapper_.end();
  }
  void make(bool eager) {
    eager_ = eager;
    pool_ = &slow_pool_;
    renew();
    gpu_.hold();
  }
  /// Two parts of the GPU's memory, which are packed.
  std::vector<HeldRange> parts() {
    std::vector<HeldRange> parts = one(device(0, kLong / 2));
    parts.push_back(device(kLong, kLong / 2));
    return parts;
  }
  OperationId begin(OperationKind kind) {
    const WireRange there{.slot = {0, 1}, .offset = 0, .bytes = kLong / 2};
    return start(kind, {.ranges = parts(), .remote = {there, there}});
  }
  /// The peer writes to those parts, or reads them.
  void ask_for_parts(FrameType type, uint64_t number) {
    OperationPayload payload;
    payload.ranges = {advertised(device_id_, 0, kLong / 2), advertised(device_id_, kLong, kLong / 2)};
    say(type, number, 0, kLong, Packing::kPacked, &payload);
  }
  void expect_write_served() {
    say_write(5, advertised(host_id_, 0, 8), std::as_bytes(std::span("7 bytes")));
    steps(3);
    const auto done = hear(FrameType::kDone);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->operation, 5u);
    EXPECT_EQ(gpu_.all_bytes(), 0u);
  }
  void expect_others_served() {
    expect_write_served();
    EXPECT_FALSE(link_->progress(true)) << "it only waits";
    EXPECT_TRUE(link_->needs_polling());
  }
  bool awaits(FrameType type) { return await(type).has_value(); }
  /// The peer has begun to write to those parts.
  void begin_write_to_parts(uint64_t number) {
    begin_write(number, {advertised(device_id_, 0, kLong / 2), advertised(device_id_, kLong, kLong / 2)}, Packing::kPacked);
    move(0);
  }
  bool parts_have_come() const {
    return has_peers(device_, kLong / 2) && std::equal(peers_.begin() + kLong / 2, peers_.begin() + kLong, device_.begin() + kLong);
  }

  SlowlyAllocatingOps gpu_{*ops_};
  StagingBuffers slow_pool_{gpu_, *ops_, 0, kStagingBytes, unmapper_};
};

TEST_F(LinkStaging, AnOfferWaitsAndOthersDoNot) {
  const FrameType types[] = {FrameType::kSend, FrameType::kWrite};
  (void)begin(OperationKind::kSend);
  (void)begin(OperationKind::kWrite);
  expect_others_served();
  for (const FrameType type : types) EXPECT_FALSE(hear(type));
  gpu_.release();
  for (const FrameType type : types) EXPECT_TRUE(awaits(type));
  EXPECT_EQ(gpu_.all_bytes(), kStagingBytes);
}

TEST_F(LinkStaging, WhatMayBeginAtThePeerWaitsAndOthersDoNot) {
  make(true);
  const FrameType types[] = {FrameType::kPosted, FrameType::kRead};
  (void)begin(OperationKind::kRecv);
  (void)begin(OperationKind::kRead);
  expect_others_served();
  for (const FrameType type : types) EXPECT_FALSE(hear(type));
  gpu_.release();
  for (const FrameType type : types) EXPECT_TRUE(awaits(type));
  EXPECT_EQ(gpu_.all_bytes(), kStagingBytes);
}

TEST_F(LinkStaging, AnswersToThePeerWaitAndOthersDoNot) {
  ask_for_parts(FrameType::kWrite, 6);
  ask_for_parts(FrameType::kRead, 7);
  expect_others_served();
  for (const FrameType type : {FrameType::kGo, FrameType::kReady}) EXPECT_FALSE(hear(type));
  gpu_.release();
  for (const FrameType type : {FrameType::kGo, FrameType::kReady}) EXPECT_TRUE(awaits(type));
  EXPECT_TRUE(drive([&] { return gpu_.all_bytes() == 2 * kStagingBytes; })) << "one for each direction";
}

TEST_F(LinkStaging, WhatThePeerHasBegunWaitsAndOthersDoNot) {
  make(true);
  begin_write_to_parts(6);
  expect_others_served();
  EXPECT_FALSE(hear(FrameType::kDone));
  gpu_.release();
  EXPECT_EQ(answer_to(6), Code::kOk);
  EXPECT_TRUE(parts_have_come());
}

TEST_F(LinkStaging, WhatThePeerAloneWantsPackedWaitsAndOthersDoNot) {
  const OperationId sent = send(device(0, kLong));
  step();
  ASSERT_TRUE(hear(FrameType::kSend));
  say_raw(make_header(FrameType::kGo, static_cast<uint64_t>(sent), 0, 0, Packing::kPacked));
  const TransferId got = receive_at_peer();
  expect_others_served();
  gpu_.release();
  EXPECT_TRUE(drive([&] { return !pending(sent) && peer_recv_->pending() == 0; }));
  EXPECT_TRUE(end_of(sent).is_ok());
  EXPECT_EQ(peer_recv_->poll(got).state, TransferState::kDone);
  EXPECT_TRUE(has_peers(device_, kLong));
}

TEST_F(LinkStaging, AReadThatThePeerAloneWantsPackedWaitsAndOthersDoNot) {
  make(true);
  OperationPayload payload;
  payload.ranges = {advertised(device_id_, 0, kLong)};
  say(FrameType::kRead, 7, 0, kLong, Packing::kPacked, &payload);
  expect_others_served();
  EXPECT_FALSE(hear(FrameType::kReady));
  gpu_.release();
  EXPECT_TRUE(awaits(FrameType::kReady));
}

TEST_F(LinkStaging, ASendForWhichAPackedReceiveIsPostedAsksFirst) {
  make(true);
  say(FrameType::kPosted, 0, 0, kLong, Packing::kPacked);
  step();
  (void)send(device(0, kLong));
  const auto offered = await(FrameType::kSend);
  ASSERT_TRUE(offered);
  EXPECT_EQ(offered->flags & kBegunFlag, 0);
  gpu_.release();
  say(FrameType::kPosted, 0, 1, kLong, Packing::kPacked);
  EXPECT_TRUE(drive([&] { return pool_->is_ready(StagingKind::kDevice); }));
  (void)send(device(0, kLong));
  const auto begun = await(FrameType::kSend);
  ASSERT_TRUE(begun);
  EXPECT_EQ(begun->flags & kBegunFlag, kBegunFlag);
}

TEST_F(LinkStaging, AShortSendIsOfferedWhenItsStagingIsMade) {
  for (int i = 0; i < kWindowful; ++i) (void)send(host(0, kShort));
  std::vector<HeldRange> short_parts = one(device(0, kShort / 2));
  short_parts.push_back(device(kLong, kShort / 2));
  (void)start(OperationKind::kSend, {.ranges = std::move(short_parts)});
  steps(5);
  expect_write_served();
  EXPECT_FALSE(hear(FrameType::kSend));
  gpu_.release();
  EXPECT_TRUE(awaits(FrameType::kSend));
}

TEST_F(LinkStaging, AFailureEndsWhatThePeerHasBegunAlone) {
  make(true);
  const Bytes before = device_;
  gpu_.refuses = true;
  begin_write_to_parts(6);
  expect_others_served();
  gpu_.release();
  EXPECT_EQ(answer_to(6), Code::kExhausted);
  EXPECT_TRUE(has_moved());
  EXPECT_EQ(device_, before);
  EXPECT_EQ(link_->arrived_bytes(), 0u);
  gpu_.refuses = false;
  begin_write_to_parts(8);
  EXPECT_EQ(answer_to(8), Code::kOk) << "it is tried again";
  EXPECT_TRUE(parts_have_come());
  expect_next_arrives();
}

TEST_F(LinkStaging, AFailureEndsTheTransferAlone) {
  gpu_.refuses = true;
  const OperationId sent = begin(OperationKind::kSend);
  steps(3);
  EXPECT_TRUE(pending(sent));
  gpu_.release();
  ASSERT_TRUE(drive([&] { return !pending(sent); }));
  EXPECT_EQ(end_of(sent).code(), Code::kExhausted);
  ask_for_parts(FrameType::kWrite, 6);
  EXPECT_TRUE(awaits(FrameType::kDone));
  gpu_.refuses = false;
  (void)begin(OperationKind::kSend);
  EXPECT_TRUE(awaits(FrameType::kSend)) << "it is tried again";
  EXPECT_TRUE(alive());
}

TEST_F(LinkStaging, ALinkEndsWhileTheDriverAllocates) {
  const OperationId sent = begin(OperationKind::kSend);
  ask_for_parts(FrameType::kWrite, 6);
  steps(3);
  link_->fail(Status(Code::kPeerGone, "test", "over"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(sent).code(), Code::kPeerGone);
  gpu_.release();
}

}  // namespace
}  // namespace tcpx::testing
