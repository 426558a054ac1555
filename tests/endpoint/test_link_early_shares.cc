// Memory of a GPU that is shared with a peer of the same host before an operation needs it: what is registered when, what goes before
// it, how much, and what happens when the memory or the peer goes. The GPU is a stand-in.
#include "tests/support/link_shares_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using LinkEarlyShares = LinkShares;

TEST_F(LinkEarlyShares, WhatIsRegisteredIsSharedBeforeItIsWritten) {
  renew_apart();
  EXPECT_TRUE(link_->needs_turns());
  for (size_t i = 0; i < kPart / kChunk; ++i) {
    const auto told = await(FrameType::kLane);
    ASSERT_TRUE(told) << i;
    EXPECT_EQ(told->value, static_cast<uint64_t>(PullTalk::kShare));
  }
  EXPECT_FALSE(link_->needs_turns());
  gpu_.hold_sharing();
  (void)write(device(0, kLong));
  const auto offer = this->offer(FrameType::kWrite);
  ASSERT_TRUE(offer);
  EXPECT_FALSE(offer->sources.empty());
  EXPECT_EQ(gpu_.sharing, kPart / kChunk);
}

TEST_F(LinkEarlyShares, WhatIsRegisteredLaterIsSharedToo) {
  ASSERT_TRUE(registry_.try_remove(device_id_).is_ok());
  renew_apart();
  EXPECT_TRUE(shared_early());
  EXPECT_FALSE(hear(FrameType::kLane));
  (void)add(device_, kPart);
  EXPECT_TRUE(link_->needs_turns());
  ASSERT_TRUE(await(FrameType::kLane));
}

TEST_F(LinkEarlyShares, WhatIsRegisteredAndAdvertisedIsSharedOnce) {
  renew_apart();
  EXPECT_TRUE(shared_early());
  (void)advertised(device_id_, 0, kShort);
  (void)add(device_, kLong);  // a region of its own, in the same chunks
  EXPECT_TRUE(shared_early());
  size_t told = 0;
  for (step(); hear(FrameType::kLane); ++told) {
  }
  EXPECT_EQ(told, kPart / kChunk);
}

TEST_F(LinkEarlyShares, NothingIsSharedEarlyWhileBytesMove) {
  renew_apart();
  EXPECT_TRUE(shared_early());
  gpu_.hold_copies();
  share(kLong);
  offer_write_from(0);
  steps(3);
  (void)add(other_, kPart);
  steps(3);
  unmapper_.end();  // what has been asked for has been shared by then
  EXPECT_EQ(gpu_.sharing, kPart / kChunk);
  gpu_.release_copies();
  ASSERT_TRUE(pulled());
  EXPECT_TRUE(shared_early());
  EXPECT_GE(gpu_.sharing, 2 * kPart / kChunk);
}

TEST_F(LinkEarlyShares, NothingIsSharedEarlyWhileAnOperationWaitsForItsShares) {
  const MemoryId needed = add(other_, kLong);
  renew_apart();
  gpu_.hold_sharing();
  write_from(needed);
  ASSERT_TRUE(wait_until([this] { return gpu_.sharing > 0; }));
  steps(3);
  gpu_.release_sharing();
  unmapper_.end();
  EXPECT_LE(gpu_.sharing, kLong / kChunk + 2) << "chunks that the operation's memory touches";
  ASSERT_TRUE(await(FrameType::kWrite));
  EXPECT_TRUE(shared_early());
}

TEST_F(LinkEarlyShares, WhatAnOperationNeedsIsSharedBeforeWhatIsSharedEarly) {
  const MemoryId needed = add(other_, kLong);
  renew_apart_busy();
  write_from(needed);
  gpu_.let_map(kBase + kLong);
  ASSERT_TRUE(wait_until([this] { return gpu_.sharing > 0; }));
  EXPECT_EQ(gpu_.first_asked, other_.data());
  gpu_.release_mapping();
  EXPECT_TRUE(await(FrameType::kWrite));
}

TEST_F(LinkEarlyShares, AnOperationHurriesWhatIsSharedEarly) {
  renew_apart_busy(1);
  (void)write(device(0, kLong));
  gpu_.hold_sharing();
  gpu_.let_map(kBase + kLong);
  EXPECT_TRUE(wait_until([this] { return gpu_.sharing > 0; })) << "a mapping that nobody waits for went first";
  EXPECT_EQ(gpu_.begun, Unmapper::kMappingThreads);
  gpu_.release_sharing();
  gpu_.release_mapping();
  EXPECT_TRUE(await(FrameType::kWrite));
}

// If the receiver cannot copy by itself, what is offered comes through the ring.
TEST_F(LinkEarlyShares, ShortWritesGoInFramesUntilTheRingIsPinned) {
  gpu_.hold_pinning();
  renew_apart();
  ASSERT_TRUE(shared_early());
  (void)write(device(0, kShort));
  EXPECT_TRUE(await(FrameType::kWriteData));
  gpu_.release_pinning();
  ASSERT_TRUE(wait_until([this] {
    (void)write(device(0, kShort));
    step();
    return hear(FrameType::kWrite).has_value();
  }));
}

TEST_F(LinkEarlyShares, NothingIsSharedEarlyWithinAProcess) {
  renew(make_host(true));
  EXPECT_FALSE(link_->needs_turns());
}

TEST_F(LinkEarlyShares, HostMemoryIsNotSharedEarly) {
  ASSERT_TRUE(registry_.try_remove(device_id_).is_ok());
  renew_apart();
  EXPECT_TRUE(shared_early());
  (void)registry_.add(other_.data(), kPart, MemoryType::kHost).value();
  EXPECT_FALSE(link_->needs_turns());
}

TEST_F(LinkEarlyShares, MemoryThatGoesBeforeAThreadIsFreeIsNotShared) {
  renew_apart_busy();
  steps(3);
  EXPECT_TRUE(registry_.try_remove(device_id_).is_ok()) << "nobody holds the memory";
  EXPECT_FALSE(link_->forget(device_id_));
  gpu_.release_mapping();
  unmapper_.end();
  EXPECT_EQ(gpu_.sharing, 0u);
  EXPECT_TRUE(shared_early());
}

TEST_F(LinkEarlyShares, SharingEndsAtDeregistration) {
  gpu_.chunk = kPart / 64;
  gpu_.hold_sharing();
  renew_apart();
  step();
  ASSERT_TRUE(wait_until([this] { return gpu_.sharing == Unmapper::kMappingThreads; }));
  EXPECT_TRUE(registry_.try_remove(device_id_).is_ok()) << "nobody holds the memory";
  EXPECT_FALSE(link_->forget(device_id_));
  gpu_.release_sharing();
  EXPECT_TRUE(shared_early());
  unmapper_.end();
  EXPECT_LT(gpu_.sharing, 64u);
  step();
  EXPECT_FALSE(hear(FrameType::kLane)) << "the peer was told of memory that has gone";
}

TEST_F(LinkEarlyShares, WhatWasSharedEarlyIsTakenBackAtDeregistration) {
  renew_apart();
  EXPECT_TRUE(shared_early());
  EXPECT_TRUE(registry_.try_remove(device_id_).is_ok());
  EXPECT_TRUE(link_->forget(device_id_));
  step();
  for (size_t i = 0; i < 2 * kPart / kChunk; ++i) {
    const auto told = hear(FrameType::kLane);
    ASSERT_TRUE(told) << i;
    const bool first = i < kPart / kChunk;
    EXPECT_EQ(told->value, static_cast<uint64_t>(first ? PullTalk::kShare : PullTalk::kUnshare)) << i;
    if (!first) say_pull(PullTalk::kUnshared, told->operation);
  }
  EXPECT_TRUE(link_->peer_holds(device_id_));
  steps(2);
  EXPECT_FALSE(link_->peer_holds(device_id_));
  EXPECT_TRUE(alive());
}

TEST_F(LinkEarlyShares, APeerThatDiesWhileItMapsHoldsNothing) {
  renew_apart();
  EXPECT_TRUE(shared_early());
  peer_->close();
  EXPECT_TRUE(registry_.try_remove(device_id_).is_ok());
  EXPECT_TRUE(link_->forget(device_id_)) << "nobody knows yet";
  EXPECT_TRUE(drive([&] { return !link_->peer_holds(device_id_); }));
  EXPECT_FALSE(alive());
}

TEST_F(LinkEarlyShares, APeerThatDiesWhileMemoryIsSharedEndsItsLink) {
  gpu_.hold_sharing();
  renew_apart();
  step();
  ASSERT_TRUE(wait_until([this] { return gpu_.sharing > 0; }));
  peer_->close();
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_FALSE(link_->needs_turns());
  link_.reset();
  gpu_.release_sharing();
}

TEST_F(LinkEarlyShares, AnOperationDoesNotWaitForAllThatIsSharedEarly) {
  gpu_.chunk = kPart / 64;
  renew_apart();
  ASSERT_TRUE(drive([&] { return gpu_.sharing > 0; }));
  (void)write(device(0, kShort * 2));
  const auto offer = this->offer(FrameType::kWrite);
  ASSERT_TRUE(offer);
  EXPECT_FALSE(offer->sources.empty());
}

TEST_F(LinkEarlyShares, TheBoundOfWhatIsSharedEarlyCountsAllRegions) {
  gpu_.chunk = kPart / kMaxExpectedShares * 2;
  for (Bytes* const memory : {&other_, &peers_}) (void)add(*memory, kPart);
  renew_apart();
  EXPECT_TRUE(shared_early());
  unmapper_.end();
  EXPECT_GE(gpu_.sharing, kMaxExpectedShares);
  EXPECT_LT(gpu_.sharing, kMaxExpectedShares * 5 / 4);
}

TEST_F(LinkEarlyShares, NotAllOfAVeryLongRegionIsSharedEarlyAndTheRestWhenItIsNeeded) {
  gpu_.chunk = kPart / (2 * kMaxExpectedShares);
  renew_apart();
  EXPECT_TRUE(shared_early());
  unmapper_.end();
  EXPECT_GE(gpu_.sharing, kMaxExpectedShares);
  EXPECT_LT(gpu_.sharing, kMaxExpectedShares * 2);
  (void)write(device(kPart - kLong, kLong));
  const auto offer = this->offer(FrameType::kWrite);
  ASSERT_TRUE(offer);
  EXPECT_GT(offer->sources.size(), kLong / gpu_.chunk);
}

}  // namespace
}  // namespace tcpx::testing
