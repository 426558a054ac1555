// A link whose peer is of the same host and may not read its memory, nor the other way round: it goes through a ring. So does memory
// of a GPU that has to go to host memory, or the other way round.
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/near_link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkShared : public NearLinkTest {
 protected:
  LinkShared() { renew(make_host(false)); }

  bool went(bool of_read = false) { return NearLinkTest::went(Way::kRing, of_read); }
  void go(OperationId operation, bool of_read = false) { say_go(operation, Way::kRing, of_read); }
  void put_all(std::span<const std::byte> bytes) {
    EXPECT_TRUE(drive([&] {
      bytes = bytes.subspan(put(bytes));
      return bytes.empty();
    }));
  }
  /// The peer puts in all that was offered, and the operation that receives it is over. @param to its memory
  void expect_arrives(OperationId id, const Bytes& to) {
    put_all(peers(0, kLong));
    ASSERT_TRUE(drive([&] { return !pending(id); }));
    EXPECT_TRUE(end_of(id).is_ok());
    EXPECT_TRUE(has_peers(to, kLong));
  }
  /// The bytes that the peer finds there.
  Bytes take(size_t count) {
    BulkRing& ring = peer_area_.bulk_ring(true);
    Bytes bytes;
    EXPECT_TRUE(drive([&] {
      while (bytes.size() < count && ring.read < ring.written) {
        bytes.push_back(ring.bytes[ring.read % BulkRing::kBytes]);
        ring.read = ring.read + 1;
      }
      return bytes.size() == count;
    }));
    return bytes;
  }
  bool is_part(const Bytes& bytes, const Bytes& of, size_t offset) {
    return std::equal(bytes.begin(), bytes.end(), of.begin() + static_cast<ptrdiff_t>(offset));
  }

  std::span<const std::byte> peers(size_t offset, size_t count) const { return std::span(peers_).subspan(offset, count); }
};

TEST_F(LinkShared, AWriteOfThePeer) {
  offer_write({});
  ASSERT_TRUE(went());
  EXPECT_TRUE(link_->serves(host_id_));
  put_all(peers(0, kLong - 1));
  steps(3);
  EXPECT_FALSE(hear(FrameType::kDone)) << "a byte is missing";
  put_all(peers(kLong - 1, 1));
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(has_peers(host_, kLong));
  EXPECT_FALSE(link_->serves(host_id_));
  EXPECT_EQ(link_->stats().bytes_received, kLong);
  EXPECT_EQ(link_->stats().chunks_in_flight, 0u);
}

TEST_F(LinkShared, RangesOfAnyLengthInTheirOrder) {
  std::vector<WireRange> ranges;
  Bytes wanted = host_;
  size_t to = kPart, from = 0;
  for (size_t length = 1; from < kLong; from += length, length = length * 5 % 1009 + 1) {
    length = std::min(length, kLong - from);
    to -= length;  // backwards
    ranges.push_back(advertised(host_id_, to, length));
    std::copy_n(peers_.begin() + static_cast<ptrdiff_t>(from), length, wanted.begin() + static_cast<ptrdiff_t>(to));
  }
  offer_write({}, ranges);
  ASSERT_TRUE(went());
  put_all(peers(0, kLong));
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(wanted == host_);
}

// Many times round the ring, whose end lies in the middle of a piece.
TEST_F(LinkShared, TheRingGoesRound) {
  for (uint64_t i = 0; i < 2 * BulkRing::kBytes / kLong; ++i) {
    const size_t offset = i % 17;
    OperationPayload payload;
    payload.ranges = {advertised(host_id_, offset, kLong)};
    payload.ring = true;
    say(FrameType::kWrite, kOperation + i, 0, kLong, Packing::kPacked, &payload);
    ASSERT_TRUE(went());
    put_all(peers(offset, kLong));
    ASSERT_TRUE(await(FrameType::kDone));
    ASSERT_TRUE(std::equal(host_.begin() + static_cast<ptrdiff_t>(offset), host_.begin() + static_cast<ptrdiff_t>(offset + kLong),
                           peers_.begin() + static_cast<ptrdiff_t>(offset)))
        << i;
    heard_.frames.clear();
  }
}

TEST_F(LinkShared, AReceiveThatComesLater) {
  offer_send({});
  steps(3);
  EXPECT_FALSE(hear(FrameType::kGo));
  const OperationId id = receive(device(0, kLong));  // no GPU's: the host gets at it
  ASSERT_TRUE(went());
  expect_arrives(id, device_);
}

TEST_F(LinkShared, AReadOfItsOwn) {
  const OperationId id = read(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kRead));
  offer_read(id, {});
  ASSERT_TRUE(went(true));
  expect_arrives(id, host_);
}

TEST_F(LinkShared, ThePeerReads) {
  ask(FrameType::kRead, kOperation);
  const auto ready = await(FrameType::kReady);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->payload_bytes, sizeof(OfferHeader));
  const Bytes before = host_;
  go(OperationId{kOperation}, true);
  EXPECT_TRUE(is_part(take(kLong), before, 0));
  steps(3);
  EXPECT_TRUE(alive());
  EXPECT_EQ(link_->stats().bytes_sent, kLong);
}

// Two at once come in the order of their Go.
TEST_F(LinkShared, WritesAndSendsOfItsOwn) {
  const OperationId written = write(host(7, kLong)), sent = send(device(9, kLong));
  ASSERT_TRUE(await(FrameType::kWrite) && await(FrameType::kSend));
  go(sent);
  go(written);
  EXPECT_TRUE(is_part(take(kLong), device_, 9));
  EXPECT_TRUE(is_part(take(kLong), host_, 7));
  expect_ends(sent, written);
}

// Nothing is said of where memory lies that the peer cannot read.
TEST_F(LinkShared, NoSourcesAreTold) {
  (void)write(host(7, kLong));
  const auto offered = offer(FrameType::kWrite);
  ASSERT_TRUE(offered);
  EXPECT_TRUE(offered->sources.empty());
  EXPECT_TRUE(offered->ring);
}

TEST_F(LinkShared, NothingIsTouchedAfterAFailure) {
  const OperationId id = receive(host(0, kLong));
  offer_send({});
  ASSERT_TRUE(went());
  put_all(peers(0, kLong / 2));
  steps(3);
  link_->fail(Status(Code::kTimeout, "test", "given up"));
  const Bytes before = host_;
  EXPECT_GT(put(peers(kLong / 2, kLong / 2)), 0u);
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_EQ(end_of(id).code(), Code::kTimeout);
  steps(10);
  EXPECT_TRUE(before == host_);
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
}

TEST_F(LinkShared, APeerThatIsGoneEndsIt) {
  const OperationId id = write(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  go(id);
  steps(3);
  peer_.reset();
  for (int i = 0; i < 10 && pending(id); ++i) link_->progress(true);
  EXPECT_EQ(end_of(id).code(), Code::kPeerGone);
}

TEST_F(LinkShared, CountersThatDoNotAddUp) {
  const OperationId id = receive(host(0, kLong));
  offer_send({});
  ASSERT_TRUE(went());
  peer_area_.bulk_ring(false).written = BulkRing::kBytes + 1;
  expect_refused();
  EXPECT_EQ(end_of(id).code(), Code::kProtocol);
}

TEST_F(LinkShared, AGoForWhatWasNotOfferedSo) {
  const OperationId id = write(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  say_go(id, Way::kPull);
  expect_refused();
}

TEST_F(LinkShared, AGoForAReadThatWasNotOfferedSo) {
  ask(FrameType::kRead, kOperation);
  ASSERT_TRUE(await(FrameType::kReady));
  say_go(OperationId{kOperation}, Way::kPull, true);
  expect_refused();
}

// Each may read the other's host memory, and `device_` is of a GPU: what the host does with it by mistake is not seen here (test_shared_lane.cc).
class LinkSharedGpu : public LinkShared {
 protected:
  LinkSharedGpu() {
    machine_ = &gpu_;
    renew(make_host(true));
  }
  ~LinkSharedGpu() override {
    link_.reset();
    unmapper_.end();
  }
  /// What the peer hears of a send of GPU memory.
  OperationPayload offered() {
    const auto offer = this->offer(FrameType::kSend);
    EXPECT_TRUE(offer);
    return offer.value_or(OperationPayload{});
  }
  HiddenMemoryOps gpu_;
};

// This GPU's memory cannot be shared, either.
TEST_F(LinkSharedGpu, FromTheGpu) {
  const OperationId sent = send(device(9, kLong));
  const OperationPayload offer = offered();
  EXPECT_TRUE(offer.sources.empty());
  EXPECT_TRUE(offer.ring);
  go(sent);
  EXPECT_TRUE(is_part(take(kLong), device_, 9));
  ASSERT_TRUE(drive([&] { return !pending(sent); }));
  EXPECT_TRUE(end_of(sent).is_ok());
}

TEST_F(LinkSharedGpu, ToTheGpuOutOfMemoryThatTheHostCouldRead) {
  const OperationId id = receive(device(0, kLong));
  offer_send({source(0, kLong)});
  ASSERT_TRUE(went());
  expect_arrives(id, device_);
}

TEST_F(LinkSharedGpu, ToTheHostOutOfAGpuThatReachesTheRing) {
  const OperationId id = receive(host(0, kLong));
  offer_send({source(0, kLong, 5)});
  ASSERT_TRUE(went());
  expect_arrives(id, host_);
}

TEST_F(LinkSharedGpu, AGpuThatDoesNotReachTheRingUsesTheNetwork) {
  gpu_.forbid_mapping();
  (void)receive(host(0, kLong));
  offer_send({source(0, kLong, 5)}, false);
  const auto taken = await(FrameType::kGo);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->way, static_cast<uint8_t>(Way::kNetwork));
  const OperationId sent = send(device(9, kLong));
  const OperationPayload offer = offered();
  EXPECT_TRUE(offer.sources.empty());
  EXPECT_FALSE(offer.ring);
  go(sent);
  expect_refused();
}

TEST_F(LinkSharedGpu, APeerWantsGpuMemoryInARingThatTheGpuDoesNotReach) {
  for (const bool reads : {false, true}) {
    allow_log("has ended: ");
    renew(make_host(true));
    host_peer_->same_process = false;
    gpu_.let_share(device_.data(), kPart);
    gpu_.forbid_mapping();
    if (reads) {
      OperationPayload payload;
      payload.ranges = {advertised(device_id_, 0, kLong)};
      say(FrameType::kRead, kOperation, 0, kLong, Packing::kWhole, &payload);
      ASSERT_TRUE(await(FrameType::kReady));
      go(OperationId{kOperation}, true);
    } else {
      const OperationId sent = send(device(9, kLong));
      ASSERT_EQ(offered().sources.at(0).address, reinterpret_cast<uintptr_t>(device_.data() + 9));
      go(sent);
    }
    expect_refused();
  }
}

// What can be pulled is also put into the ring, if the peer has it so.
TEST_F(LinkSharedGpu, ThePeerChooses) {
  const OperationId sent = send(host(9, kLong));
  ASSERT_EQ(offered().sources.at(0).share, kHostMemory);
  go(sent);
  EXPECT_TRUE(is_part(take(kLong), host_, 9));
  ASSERT_TRUE(drive([&] { return !pending(sent); }));
  EXPECT_TRUE(end_of(sent).is_ok());
}

TEST_F(LinkSharedGpu, WhenTheLinkHasEndedTheRingIsPinnedNoMore) {
  (void)send(device(9, kLong));
  ASSERT_TRUE(await(FrameType::kSend));
  EXPECT_EQ(gpu_.mapped_bytes(), BulkRing::kBytes);
  link_->fail(Status(Code::kTimeout, "test", "given up"));
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  unmapper_.end();
  EXPECT_EQ(gpu_.mapped_bytes(), 0u);
}

}  // namespace
}  // namespace tcpx::testing
