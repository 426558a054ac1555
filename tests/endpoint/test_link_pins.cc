// The ring that a link shares with a peer of its host is pinned for the GPU, which can take the driver long: others are served
// meanwhile, and what can only go through the ring waits. The GPU is a stand-in.
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/near_link_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

/// Pins when the test lets it.
class SlowlyPinningOps : public HiddenMemoryOps {
 public:
  Result<MemoryBuffer> map_host(int device, void* host, size_t bytes) override {
    ++asked;
    EXPECT_TRUE(wait_until([this] { return !held_; }));
    EXPECT_EQ(::msync(host, bytes, MS_ASYNC), 0) << "it is not mapped any more";
    return HiddenMemoryOps::map_host(device, host, bytes);
  }
  void hold_pinning() { held_ = true; }
  void release_pinning() { held_ = false; }

  std::atomic<int> asked = 0;

 private:
  std::atomic<bool> held_ = false;
};

class LinkPins : public NearLinkTest {
 protected:
  LinkPins() {
    machine_ = &gpu_;
    link_.reset();
    bulk_copier_ = gpu_.make_segment_copier(0).value();
    renew_near();
  }
  ~LinkPins() override {
    gpu_.release_pinning();
    link_.reset();
    unmapper_.end();
    EXPECT_EQ(gpu_.mapped_bytes(), 0u);
  }

  void renew_near() { renew(make_host(false)); }
  /// A write of this end is done while the driver pins.
  void expect_others_served() {
    say_write(kOperation + 1, advertised(host_id_, 0, 8), std::as_bytes(std::span("7 bytes")));
    steps(3);
    const auto done = hear(FrameType::kDone);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->operation, kOperation + 1);
    EXPECT_EQ(gpu_.mapped_bytes(), 0u);
    EXPECT_FALSE(link_->progress(true)) << "it only waits";
  }
  void ask_for_read() {
    OperationPayload payload;
    payload.ranges = {advertised(device_id_, 0, kLong)};
    say(FrameType::kRead, kOperation, 0, kLong, Packing::kWhole, &payload);
  }
  /// The link has put the begin of its memory into the ring.
  void expect_in_ring() {
    BulkRing& ring = peer_area_.bulk_ring(true);
    ASSERT_TRUE(drive([&] { return ring.written == kLong; }));
    EXPECT_TRUE(std::equal(device_.begin(), device_.begin() + kLong, ring.bytes));
  }

  SlowlyPinningOps gpu_;
};

TEST_F(LinkPins, AnOfferWaitsForItAndOthersDoNot) {
  gpu_.hold_pinning();
  for (const OperationId id : {send(device(0, kLong)), write(device(0, kLong))}) EXPECT_TRUE(pending(id));
  expect_others_served();
  EXPECT_FALSE(hear(FrameType::kSend) || hear(FrameType::kWrite));
  EXPECT_TRUE(link_->needs_polling());
  gpu_.release_pinning();
  for (const FrameType type : {FrameType::kSend, FrameType::kWrite}) {
    const auto offered = offer(type);
    ASSERT_TRUE(offered);
    EXPECT_TRUE(offered->ring);
  }
  EXPECT_EQ(gpu_.asked, 1);
  say_go(static_cast<OperationId>(hear(FrameType::kSend)->operation), Way::kRing);
  expect_in_ring();
}

TEST_F(LinkPins, ARoundOfAPlanWaitsAsAWhole) {
  gpu_.hold_pinning();
  const LocalRange local{.memory = device_id_, .data = device_.data(), .bytes = kLong};
  const RemoteRange remote{.slot = registry_.advertise(kConn, device_id_, device_.data(), kLong).value()};
  Operation& operation = *operations_.acquire().value();
  operation.kind = OperationKind::kWrite;
  operation.deadline = clock_.now() + std::chrono::seconds(30);
  const auto plan = plan_ranges(registry_, std::span(&local, 1), std::span(&remote, 1), 1).value();
  ASSERT_TRUE(plan->hold(registry_, operation.uses).is_ok());
  operation.rounds = PlannedRounds::begin(plan, operation.uses, {}).value();
  link_->submit(operation);
  steps(3);
  EXPECT_FALSE(hear(FrameType::kWrite));
  gpu_.release_pinning();
  const auto offered = await(FrameType::kWrite);
  ASSERT_TRUE(offered);
  EXPECT_EQ(offered->bytes, kLong);
}

TEST_F(LinkPins, AnAnswerToAReadWaitsForItAndOthersDoNot) {
  gpu_.hold_pinning();
  ask_for_read();
  expect_others_served();
  EXPECT_FALSE(hear(FrameType::kReady));
  EXPECT_TRUE(link_->needs_polling());
  gpu_.release_pinning();
  ASSERT_TRUE(await(FrameType::kReady));
  say_go(OperationId{kOperation}, Way::kRing, true);
  expect_in_ring();
}

TEST_F(LinkPins, AGoWaitsForItAndOthersDoNot) {
  gpu_.hold_pinning();
  offer_write({}, {advertised(device_id_, 0, kLong)});
  expect_others_served();
  EXPECT_FALSE(hear(FrameType::kGo));
  EXPECT_TRUE(link_->needs_polling());
  EXPECT_TRUE(link_->serves(device_id_));
  gpu_.release_pinning();
  ASSERT_TRUE(went(Way::kRing));
  EXPECT_EQ(put(std::span(peers_).first(kLong)), kLong);
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(has_peers(device_, kLong));
  EXPECT_EQ(gpu_.asked, 1);
}

TEST_F(LinkPins, HostMemoryGoesFirst) {
  gpu_.hold_pinning();
  offer_write({}, {advertised(device_id_, 0, kLong)});
  offer_send({});
  const OperationId received = receive(host(0, kLong));
  ASSERT_TRUE(went(Way::kRing));
  EXPECT_EQ(put(std::span(peers_).first(kLong)), kLong);
  ASSERT_TRUE(drive([&] { return !pending(received); }));
  EXPECT_TRUE(end_of(received).is_ok());
  EXPECT_TRUE(has_peers(host_, kLong));
  gpu_.release_pinning();
  ASSERT_TRUE(went(Way::kRing));
  EXPECT_EQ(put(std::span(peers_).first(kLong)), kLong);
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(has_peers(device_, kLong));
}

TEST_F(LinkPins, WhatCannotBePinnedIsNotUsed) {
  gpu_.forbid_mapping();
  gpu_.hold_pinning();
  (void)send(device(0, kLong));
  offer_write({}, {advertised(device_id_, 0, kLong)});
  steps(3);
  EXPECT_FALSE(hear(FrameType::kGo));
  gpu_.release_pinning();
  const auto offered = offer(FrameType::kSend);
  ASSERT_TRUE(offered);
  EXPECT_FALSE(offered->ring);
  EXPECT_TRUE(went(Way::kNetwork));
  EXPECT_TRUE(alive());
}

TEST_F(LinkPins, ALinkEndsWhileTheDriverPins) {
  gpu_.hold_pinning();
  offer_write({}, {advertised(device_id_, 0, kLong)});
  const OperationId sent = send(device(0, kLong));
  steps(3);
  link_->fail(Status(Code::kPeerGone, "test", "over"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(sent).code(), Code::kPeerGone);
  EXPECT_FALSE(link_->serves(device_id_));
  link_.reset();
  gpu_.release_pinning();
  unmapper_.end();
}

}  // namespace
}  // namespace tcpx::testing
