// Leases of GPU memory: the test holds a copy by holding the mapping of the share that it needs.
#include "tests/support/link_shares_fixture.h"

namespace tcpx::testing {
namespace {

class LinkLeasesOnGpu : public LinkShares {
 protected:
  /// Shares memory of the peer, and lets the link use it as a slot. @return the word of the lease
  std::atomic<uint64_t>& lend() {
    std::atomic<uint64_t>& word = peer_area_.leases(false).words[0];
    word = 9;
    share(kLong);
    say_lease(0, 9, {0, 1}, {{kShare, kBase, kLong}});
    steps(2);
    return word;
  }
};

TEST_F(LinkLeasesOnGpu, IsReadWithoutAsking) {
  (void)lend();
  const OperationId id = read(device(0, kLong));
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(has_peers(device_, kLong));
  EXPECT_FALSE(hear(FrameType::kRead));
}

TEST_F(LinkLeasesOnGpu, IsWrittenWithoutAsking) {
  (void)lend();
  const OperationId id = write(device(0, kLong));
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(has_peers(device_, kLong));
  EXPECT_FALSE(hear(FrameType::kWrite));
  EXPECT_EQ(peer_area_.leases(false).writing[0], 0u);
}

// At each place where it asks for memory: the operation holds its own until the copy is over.
TEST_F(LinkLeasesOnGpu, WantOfMemoryLosesNothing) {
  Gate now{.open = true, .failure = {}};
  bool refused = true;
  uint64_t refusals = 0;
  for (; refused; ++refusals) {
    renew_apart();
    (void)lend();
    const OperationId first = read(device(0, kLong));  // afterwards the share is mapped
    ASSERT_TRUE(drive([&] { return !pending(first); }));
    EXPECT_TRUE(end_of(first).is_ok());
    const OperationId id =
        start(OperationKind::kRead, {.ranges = one(device(0, kLong)), .remote = {{{0, 1}, 0, kLong}}, .after = &now});
    refused = progress_without_memory(refusals);
    ASSERT_TRUE(drive([&] { return !pending(id); })) << "after " << refusals << " allocations; " << link_->flight_record();
    const Status end = end_of(id);
    EXPECT_TRUE(end.is_ok() || end.code() == Code::kExhausted) << end.to_string();
  }
  EXPECT_GT(refusals, 3u) << "nothing was tried";
}

TEST_F(LinkLeasesOnGpu, AWriteStopsWhereItsLeaseEnds) {
  gpu_.hold_mapping();
  std::atomic<uint64_t>& word = lend();
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
  gpu_.hold_mapping();
  std::atomic<uint64_t>& word = lend();
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
    gpu_.hold_mapping();
    std::atomic<uint64_t>& word = lend();
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
  (void)lend();
  say_pull(PullTalk::kUnshare, kShare);
  steps(3);
  (void)read(device(0, kLong));
  EXPECT_TRUE(await(FrameType::kRead));
}

}  // namespace
}  // namespace tcpx::testing
