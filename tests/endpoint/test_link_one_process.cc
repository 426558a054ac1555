// GPU memory of a peer in this process: read where it lies, and kept until nobody reads it. The GPU is a stand-in.
#include "tests/support/link_shares_fixture.h"

namespace tcpx::testing {
namespace {

class LinkOneProcess : public LinkShares {
 protected:
  LinkOneProcess() { host_peer_->same_process = true; }

  /// The peer's memory as a share, and a write out of it.
  void offer_write_from_here() {
    NearLinkTest::share(kShare, {.kind = ShareKind::kIpc, .base = reinterpret_cast<uintptr_t>(peers_.data()), .bytes = kPart});
    offer_write({source(0, kLong, kShare)}, {advertised(device_id_, 0, kLong)});
  }
  /// Reads of this end's memory by the peer, and of the peer's by this end.
  std::atomic<uint32_t>& reads_of_peer() { return peer_area_.leases(true).reading; }
  std::atomic<uint32_t>& reads() { return peer_area_.leases(false).reading; }
  void fail() { link_->fail(Status(Code::kCancelled, "test", "it fails")); }
};

TEST_F(LinkOneProcess, MemoryOfAGpuIsReadWhereItLies) {
  offer_write_from_here();
  ASSERT_TRUE(pulled());
  EXPECT_TRUE(has_peers(device_, kLong));
  EXPECT_EQ(gpu_.begun, 0u) << "the driver was asked to open a handle of this process";
}

TEST_F(LinkOneProcess, MemoryThatTheGpuDoesNotReachComesInAnotherWay) {
  gpu_.out_of_reach = true;
  offer_write_from_here();
  EXPECT_TRUE(went(Way::kRing));
  EXPECT_TRUE(alive());
}

TEST_F(LinkOneProcess, ChunksAreMappedOnceMore) {
  NearLinkTest::share(kShare, {.kind = ShareKind::kFabric, .base = kBase, .bytes = kLong});
  offer_write_from(0);
  ASSERT_TRUE(pulled());
  EXPECT_EQ(gpu_.begun, 1u);
}

TEST_F(LinkOneProcess, AReadIsCountedUntilItIsOver) {
  gpu_.hold_copies();
  offer_write_from_here();
  ASSERT_TRUE(drive([&] { return gpu_.most_at_once() == 1; }));
  EXPECT_EQ(reads(), 1u);
  fail();
  steps(3);
  EXPECT_EQ(reads(), 1u) << "the copy still reads";
  EXPECT_FALSE(link_->closed());
  gpu_.release_copies();
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(reads(), 0u);
}

TEST_F(LinkOneProcess, NothingIsReadOfAPeerThatHasGivenUp) {
  peer_alive() = 0;
  offer_write_from_here();
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(link_->status().code(), Code::kPeerGone);
  EXPECT_EQ(gpu_.most_at_once(), 0u);
  EXPECT_EQ(reads(), 0u);
}

TEST_F(LinkOneProcess, AnOperationThatFailsKeepsItsMemoryUntilItIsNotRead) {
  const OperationId written = write(device(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  reads_of_peer() = 1;
  fail();
  steps(20);
  EXPECT_TRUE(pending(written));
  EXPECT_FALSE(link_->closed());
  EXPECT_TRUE(link_->needs_polling()) << "nobody tells when the peer has read";
  EXPECT_EQ(registry_.try_remove(device_id_).status().code(), Code::kExhausted);
  reads_of_peer() = 0;
  ASSERT_TRUE(drive([&] { return !pending(written) && link_->closed(); }));
  EXPECT_EQ(end_of(written).code(), Code::kCancelled);
  EXPECT_TRUE(registry_.try_remove(device_id_).is_ok());
}

TEST_F(LinkOneProcess, MemoryThatIsReadByLeaseIsNotLetGoOfWhenTheConnectionFails) {
  reads_of_peer() = 1;
  EXPECT_FALSE(link_->forget(device_id_)) << "nothing was shared";
  fail();
  EXPECT_TRUE(link_->forget(device_id_));
  EXPECT_TRUE(link_->peer_holds(device_id_));
  reads_of_peer() = 0;
  EXPECT_FALSE(link_->peer_holds(device_id_));
}

TEST_F(LinkOneProcess, AnotherProcessCannotKeepAnOperationFromEnding) {
  renew_apart();
  const OperationId written = write(device(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  reads_of_peer() = 1;
  fail();
  EXPECT_TRUE(drive([&] { return !pending(written) && link_->closed(); }));
}

TEST_F(LinkOneProcess, ALinkThatIsDestroyedDoesNotWaitForEver) {
  reads_of_peer() = 1;
  link_.reset();
  EXPECT_EQ(reads_of_peer(), 1u);
}

}  // namespace
}  // namespace tcpx::testing
