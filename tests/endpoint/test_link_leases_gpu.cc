// Leases of GPU memory: the test holds a copy by holding the mapping of the share that it needs.
#include "tests/support/link_shares_fixture.h"

namespace tcpx::testing {
namespace {

class LinkLeasesOnGpu : public LinkShares {
 protected:
  void lease(std::atomic<uint64_t>& word, uint64_t bytes) {
    struct {
      WireLease head;
      WireSource source;
    } const words{{{0, 1}, 9, static_cast<uint64_t>(SlotAccess::kReadWrite)}, {kShare, kBase, bytes}};
    word = 9;
    say_pull(PullTalk::kLease, 0, std::as_bytes(std::span(&words, 1)));
    steps(2);
  }
};

TEST_F(LinkLeasesOnGpu, IsReadWithoutAsking) {
  share(kLong);
  lease(peer_area_.leases(false).words[0], kLong);
  const OperationId id = read(device(0, kLong));
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(has_peers(device_, kLong));
  EXPECT_FALSE(hear(FrameType::kRead));
}

TEST_F(LinkLeasesOnGpu, IsWrittenWithoutAsking) {
  share(kLong);
  lease(peer_area_.leases(false).words[0], kLong);
  host_peer_->same_process = true;  // else it would need a pidfd of the peer
  const OperationId id = write(device(0, kLong));
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(has_peers(device_, kLong));
  EXPECT_FALSE(hear(FrameType::kWrite));
  EXPECT_EQ(peer_area_.leases(false).writing[0], 0u);
}

TEST_F(LinkLeasesOnGpu, APeerThatCannotBeNamedIsNotWritten) {
  share(kLong);
  lease(peer_area_.leases(false).words[0], kLong);
  (void)write(device(0, kLong));
  EXPECT_TRUE(await(FrameType::kWrite));
}

TEST_F(LinkLeasesOnGpu, AWriteStopsWhereItsLeaseEnds) {
  host_peer_->same_process = true;
  gpu_.hold_mapping();
  share(kLong);
  auto& word = peer_area_.leases(false).words[0];
  lease(word, kLong);
  const Bytes before = peers_;
  const OperationId id = write(device(0, kLong));
  steps(3);
  EXPECT_EQ(peer_area_.leases(false).writing[0], 1u);
  word = 0;
  gpu_.release_mapping();
  ASSERT_TRUE(await(FrameType::kWrite)) << "the peer says what is wrong";
  EXPECT_EQ(peers_, before);
  EXPECT_EQ(peer_area_.leases(false).writing[0], 0u) << "the peer waits for that";
  EXPECT_TRUE(pending(id));
}

TEST_F(LinkLeasesOnGpu, BytesDoNotCountThatWereCopiedWhileItEnded) {
  auto& word = peer_area_.leases(false).words[0];
  gpu_.hold_mapping();
  share(kLong);
  lease(word, kLong);
  const OperationId id = read(device(0, kLong));
  steps(3);
  EXPECT_FALSE(hear(FrameType::kRead));
  word = 0;
  gpu_.release_mapping();
  ASSERT_TRUE(await(FrameType::kRead)) << "the peer says what is wrong";
  EXPECT_TRUE(pending(id));
  EXPECT_EQ(peer_area_.leases(false).bytes_read, 0u);
  say_done(id, Code::kNotFound);
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_EQ(end_of(id).code(), Code::kNotFound);
  EXPECT_TRUE(alive());
}

TEST_F(LinkLeasesOnGpu, ACancelledReadEndsWithItsCopy) {
  for (const bool ended : {false, true}) {
    renew_apart();
    auto& word = peer_area_.leases(false).words[0];
    gpu_.hold_mapping();
    share(kLong);
    lease(word, kLong);
    const OperationId id = read(device(0, kLong));
    steps(3);
    cancel(id);
    steps(3);
    EXPECT_TRUE(pending(id)) << "its memory may still be written";
    if (ended) word = 0;
    gpu_.release_mapping();
    ASSERT_TRUE(drive([&] { return !pending(id); }));
    EXPECT_EQ(end_of(id).code(), Code::kCancelled);
    EXPECT_FALSE(hear(FrameType::kRead));
  }
}

TEST_F(LinkLeasesOnGpu, AShareThatGoesIsAskedFor) {
  share(kLong);
  lease(peer_area_.leases(false).words[0], kLong);
  say_pull(PullTalk::kUnshare, kShare);
  steps(3);
  (void)read(device(0, kLong));
  EXPECT_TRUE(await(FrameType::kRead));
}

}  // namespace
}  // namespace tcpx::testing
