// Memory of a GPU that a peer of the same host shares, or is told of: ranges that lie across its chunks, and those that do not lie in
// it; a share that goes while it is copied; memory that is wanting for a moment. The GPU is a stand-in.
#include "tests/support/link_shares_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

TEST_F(LinkShares, ARangeLiesInTheChunksThatItTouchesAndInNoOther) {
  for (const size_t offset : {size_t{0}, size_t{1}, kChunk - 1, kChunk, kChunk + 1, 2 * kChunk}) {
    const std::vector<WireSource> sources = offered(offset);
    uint64_t at = reinterpret_cast<uintptr_t>(device_.data()) + offset, bytes = 0;
    for (const WireSource& source : sources) {
      EXPECT_EQ(source.address, at) << offset;
      EXPECT_GT(source.bytes, 0u) << offset;
      at += source.bytes;
      bytes += source.bytes;
    }
    EXPECT_EQ(bytes, kLong) << offset;
    EXPECT_EQ(sources.size(), (offset + kLong - 1) / kChunk - offset / kChunk + 1) << offset;
  }
}

TEST_F(LinkShares, SeveralChunksAreSharedAtOnce) {
  gpu_.chunk = kPart / 16;
  gpu_.hold_sharing();
  (void)send(device(0, kLong));
  EXPECT_TRUE(wait_until([this] { return gpu_.sharing == Unmapper::kMappingThreads; })) << gpu_.sharing << " at once";
  steps(2);
  EXPECT_FALSE(hear(FrameType::kSend));
  gpu_.release_sharing();
  const auto offer = this->offer(FrameType::kSend);
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->sources.size(), kLong / gpu_.chunk + 1);
}

TEST_F(LinkShares, ADriverWhoseExtentsAreTooLongIsAskedAgain) {
  gpu_.told_chunks = 2;
  const std::vector<WireSource> sources = offered(kChunk - 1);
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_EQ(sources.back().bytes, kChunk - 1 + kLong - 2 * kChunk);
}

TEST_F(LinkShares, ChunksBehindThoseThatAnOperationNeedsAreNotWaitedFor) {
  gpu_.chunk = kPart / 64;
  ASSERT_FALSE(offered(0).empty());
  EXPECT_GE(gpu_.sharing, kLong / gpu_.chunk);
  EXPECT_LT(gpu_.sharing, 64u);
}

TEST_F(LinkShares, WantOfMemoryForAMomentRefusesNothingForGood) {
  gpu_.wanting = true;
  EXPECT_TRUE(offered(0).empty());
  gpu_.wanting = false;
  const std::vector<WireSource> sources = offered(0);
  ASSERT_FALSE(sources.empty());
  EXPECT_EQ(sources[0].address, reinterpret_cast<uintptr_t>(device_.data()));
}

TEST_F(LinkShares, ADriverThatTakesLongToShareHoldsUpNothingElse) {
  gpu_.hold_sharing();
  const OperationId waits = write(device(0, kLong));
  const OperationId passes = write(host(0, kLong));
  EXPECT_TRUE(await(FrameType::kWrite));
  EXPECT_EQ(heard_.frames.size(), 0u) << "the operation whose memory is not shared yet has been told to the peer";
  EXPECT_TRUE(pending(waits) && pending(passes));
  gpu_.release_sharing();
  EXPECT_TRUE(await(FrameType::kWrite));
}

// A frame costs a copy to the host and one from it; the peer's GPU needs one copy, however short.
TEST_F(LinkShares, ShortWritesArePulledOnceTheirMemoryIsShared) {
  gpu_.hold_sharing();
  (void)write(device(0, kShort));
  ASSERT_TRUE(await(FrameType::kWriteData)) << "the operation has waited until its memory was shared";
  gpu_.release_sharing();
  ASSERT_FALSE(offered(0).empty());
  const OperationId pulled = write(device(1, kShort));
  const auto offer = this->offer(FrameType::kWrite);
  ASSERT_TRUE(offer);
  ASSERT_EQ(offer->sources.size(), 1u);
  EXPECT_EQ(offer->sources[0].address, reinterpret_cast<uint64_t>(device_.data() + 1));
  EXPECT_EQ(offer->sources[0].bytes, kShort);
  say_go(pulled, Way::kPull);
  say_done(pulled);
  ASSERT_TRUE(drive([&] { return !pending(pulled); }));
  EXPECT_TRUE(end_of(pulled).is_ok());

  (void)write(host(0, kShort));
  EXPECT_TRUE(await(FrameType::kWriteData)) << "host memory";
  (void)send(device(0, kShort));
  EXPECT_TRUE(await(FrameType::kSendData)) << "a send would wait for its receive";
}

TEST_F(LinkShares, ShortReadsOfSharedMemoryAreAnsweredWithItsPlace) {
  OperationPayload payload;
  payload.ranges = {advertised(device_id_, 8, kShort)};
  gpu_.hold_sharing();
  say(FrameType::kRead, kOperation, 0, kShort, Packing::kWhole, &payload);
  ASSERT_TRUE(await(FrameType::kReadData)) << "the read has waited until its memory was shared";
  gpu_.release_sharing();
  ASSERT_FALSE(offered(0).empty());
  say(FrameType::kRead, kOperation + 1, 0, kShort, Packing::kWhole, &payload);
  const auto offer = this->offer(FrameType::kReady);
  ASSERT_TRUE(offer);
  ASSERT_EQ(offer->sources.size(), 1u);
  EXPECT_EQ(offer->sources[0].address, reinterpret_cast<uint64_t>(device_.data() + 8));
}

TEST_F(LinkShares, ShortWritesGoInFramesWhereThePeerDoesNotPull) {
  ASSERT_FALSE(offered(0).empty());
  const OperationId first = write(device(0, kShort));
  ASSERT_TRUE(await(FrameType::kWrite));
  say_go(first, Way::kRing);
  say_done(first);
  ASSERT_TRUE(drive([&] { return !pending(first); }));
  (void)write(device(0, kShort));
  EXPECT_TRUE(await(FrameType::kWriteData));
  const OperationId longer = write(device(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  say_go(longer, Way::kPull);
  say_done(longer);
  ASSERT_TRUE(drive([&] { return !pending(longer); }));
  (void)write(device(0, kShort));
  EXPECT_TRUE(await(FrameType::kWrite)) << "the peer pulls again";
}

TEST_F(LinkShares, WhatLiesWhollyInAShareIsPulled) {
  share(kLong + 10);
  offer_write_from(10);
  ASSERT_TRUE(pulled());
  EXPECT_TRUE(std::equal(device_.begin(), device_.begin() + kLong, peers_.begin() + 10));
}

TEST_F(LinkShares, WhatReachesBeyondAShareIsNotPulled) {
  for (const uint64_t offset : {uint64_t{11}, kLong + 10, kLong + 11, ~uint64_t{0} - kBase - kLong}) {
    allow_log("has ended: ");
    renew(make_host(true));
    share(kLong + 10);
    offer_write_from(offset);
    const auto go = await(FrameType::kGo);
    ASSERT_TRUE(go) << offset;
    EXPECT_NE(go->way, static_cast<uint8_t>(Way::kPull)) << offset;
  }
}

TEST_F(LinkShares, ACopyThatRunsKeepsItsShareMapped) {
  gpu_.hold_copies();
  share(kLong);
  step();
  ASSERT_TRUE(wait_until([this] { return gpu_.mapped == 1; }));
  offer_write_from(0);
  steps(3);
  say_pull(PullTalk::kUnshare, kShare);
  steps(3);
  EXPECT_TRUE(alive());
  EXPECT_FALSE(hear(FrameType::kGo));
  EXPECT_EQ(gpu_.mapped, 1);
  gpu_.release_copies();
  ASSERT_TRUE(pulled());
  unmapper_.end();
  EXPECT_EQ(gpu_.mapped, 0);
  EXPECT_TRUE(has_peers(device_, kLong));
}

TEST_F(LinkShares, ThePeerIsToldWhenItsMemoryIsNotMappedAnyMore) {
  share(kLong);
  step();
  ASSERT_TRUE(wait_until([this] { return gpu_.mapped == 1; }));
  gpu_.hold_unmapping();
  say_pull(PullTalk::kUnshare, kShare);
  steps(5);
  EXPECT_FALSE(hear(FrameType::kLane)) << "the driver waits for a kernel";
  EXPECT_FALSE(link_->needs_polling()) << "and nobody asks it";
  gpu_.release_unmapping();
  std::optional<FrameHeader> told;
  ASSERT_TRUE(wait_until([&] {
    step();
    return (told = hear(FrameType::kLane)).has_value();
  }));
  EXPECT_EQ(told->operation, kShare);
  EXPECT_EQ(told->value, static_cast<uint64_t>(PullTalk::kUnshared));
  EXPECT_EQ(told->bytes, 1u) << "to the sender";
  EXPECT_EQ(gpu_.mapped, 0);
}

TEST_F(LinkShares, OthersAreServedWhileAShareIsMapped) {
  gpu_.hold_mapping();
  share(kLong);
  offer_write_from(0);
  say_write(kOperation + 1, advertised(host_id_, 0, 8), std::as_bytes(std::span("7 bytes")));
  steps(3);
  const auto done = hear(FrameType::kDone);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->operation, kOperation + 1);
  EXPECT_FALSE(hear(FrameType::kGo));
  EXPECT_EQ(gpu_.mapped, 0);
  gpu_.release_mapping();
  ASSERT_TRUE(pulled());
  EXPECT_TRUE(has_peers(device_, kLong));
}

TEST_F(LinkShares, WhatCannotBeMappedComesInAnotherWay) {
  gpu_.refuses = true;
  for (const bool ring : {true, false}) {
    renew(make_host(true));
    host_peer_->same_process = false;
    gpu_.hold_mapping();
    share(kLong);
    offer_write({{.share = kShare, .address = kBase, .bytes = kLong}}, {advertised(device_id_, 0, kLong)}, ring);
    steps(2);
    EXPECT_FALSE(hear(FrameType::kGo));
    gpu_.release_mapping();
    EXPECT_TRUE(went(ring ? Way::kRing : Way::kNetwork));
    EXPECT_TRUE(alive());
  }
  allow_log("has ended: ");
}

TEST_F(LinkShares, WhatIsMappedIsCopiedWhileTheRestIsBeingMapped) {
  offer_write_from_two();
  EXPECT_TRUE(std::equal(device_.begin(), device_.begin() + kHalf, peers_.begin()));
  EXPECT_FALSE(hear(FrameType::kGo));
  gpu_.hold_mapping_of(0);
  ASSERT_TRUE(pulled());
  EXPECT_TRUE(std::equal(device_.begin() + kHalf, device_.begin() + kLong, peers_.begin()));
}

TEST_F(LinkShares, WhatAnOperationNeedsIsMappedFirst) {
  constexpr size_t kBusy = Unmapper::kMappingThreads;
  gpu_.hold_mapping();
  for (size_t i = 1; i <= kBusy + 2; ++i)
    NearLinkTest::share(kShare + i, {.kind = ShareKind::kIpc, .base = kBase + i * kLong, .bytes = kLong});
  share(kLong);  // behind all of them
  step();
  ASSERT_TRUE(wait_until([this] { return gpu_.begun == kBusy; }));
  offer_write_from(0);
  steps(2);
  gpu_.let_map(kBase + kLong);
  ASSERT_TRUE(wait_until([this] { return gpu_.begun == kBusy + 1; }));
  EXPECT_EQ(gpu_.last_begun, kBase);
  gpu_.let_map(kBase);
  EXPECT_TRUE(pulled());
  gpu_.release_mapping();
}

TEST_F(LinkShares, WhatThePeerTakesBackIsNotMappedAnyMore) {
  constexpr size_t kBusy = Unmapper::kMappingThreads;
  gpu_.hold_mapping();
  for (size_t i = 1; i <= kBusy; ++i)
    NearLinkTest::share(kShare + i, {.kind = ShareKind::kIpc, .base = kBase + i * kLong, .bytes = kLong});
  share(kLong);
  step();
  ASSERT_TRUE(wait_until([this] { return gpu_.begun == kBusy; }));
  say_pull(PullTalk::kUnshare, kShare);
  const auto told = await(FrameType::kLane);
  ASSERT_TRUE(told) << "at once, though the driver is busy";
  EXPECT_EQ(told->operation, kShare);
  gpu_.release_mapping();
  unmapper_.end();
  EXPECT_EQ(gpu_.begun, kBusy);
}

TEST_F(LinkShares, WhatCannotGoOnBeginsAnewOnceNothingIsCopied) {
  gpu_.hold_copies();
  gpu_.refused_base = kSecond;
  offer_write_from_two(false);
  EXPECT_EQ(gpu_.most_at_once(), 1u) << "the first is being copied";
  gpu_.hold_mapping_of(0);
  unmapper_.end();  // the second has been tried by then
  steps(3);
  EXPECT_FALSE(hear(FrameType::kGo)) << "the copy still writes";
  gpu_.release_copies();
  EXPECT_TRUE(went(Way::kNetwork));
  EXPECT_TRUE(alive());
  allow_log("has ended: ");
}

TEST_F(LinkShares, AShareThatGoesWhileItIsMappedIsUnmapped) {
  gpu_.hold_mapping();
  share(kLong);
  step();
  ASSERT_TRUE(wait_until([this] { return gpu_.begun == 1; }));
  say_pull(PullTalk::kUnshare, kShare);
  steps(3);
  EXPECT_TRUE(alive());
  EXPECT_FALSE(hear(FrameType::kLane));
  gpu_.release_mapping();
  EXPECT_TRUE(await(FrameType::kLane));
  EXPECT_EQ(gpu_.mapped, 0);
}

TEST_F(LinkShares, ALinkEndsWhileTheDriverMaps) {
  gpu_.hold_mapping();
  share(kLong);
  offer_write_from(0);
  steps(2);
  link_->fail(Status(Code::kPeerGone, "test", "over"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  link_.reset();
  gpu_.release_mapping();
}

TEST_F(LinkShares, AShareCountsAsMappedUntilThePeerHasSaidOtherwise) {
  const MemoryId region = registry_.add(device_.data(), kLong, MemoryType::kCuda).value();
  {
    std::vector<HeldRange> whole = one({registry_.use(region).value(), device_.data(), kLong});
    (void)start(OperationKind::kSend, {.ranges = std::move(whole)});
  }
  ASSERT_TRUE(await(FrameType::kSend));
  std::vector<uint64_t> shares;
  while (const auto told = hear(FrameType::kLane)) shares.push_back(told->operation);
  ASSERT_FALSE(shares.empty());
  EXPECT_FALSE(link_->peer_holds(region));
  EXPECT_TRUE(link_->forget(region));
  step();
  for (const uint64_t number : shares) {
    EXPECT_TRUE(link_->peer_holds(region));
    EXPECT_FALSE(link_->peer_holds(host_id_)) << "that is another one";
    say_pull(PullTalk::kUnshared, number);
    steps(2);
  }
  EXPECT_FALSE(link_->peer_holds(region));
  EXPECT_TRUE(alive());
  say_pull(PullTalk::kUnshared, shares.front());
  steps(2);
  EXPECT_EQ(link_->status().code(), Code::kProtocol) << "twice";
  EXPECT_FALSE(link_->peer_holds(region));
}

TEST_F(LinkShares, OnlyTheAnswerEndsWhatThePeerMaps) {
  const MemoryId region = registry_.add(device_.data(), kLong, MemoryType::kCuda).value();
  {
    std::vector<HeldRange> whole = one({registry_.use(region).value(), device_.data(), kLong});
    (void)start(OperationKind::kSend, {.ranges = std::move(whole)});
  }
  ASSERT_TRUE(await(FrameType::kSend));
  const auto shared = hear(FrameType::kLane);
  ASSERT_TRUE(shared);
  EXPECT_TRUE(link_->forget(region));
  say_raw(make_header(FrameType::kLane, shared->operation, static_cast<uint64_t>(PullTalk::kUnshare), 1, Packing::kWhole,
                      Way::kPull));
  expect_refused();
}

TEST_F(LinkShares, ALinkEndsWhileTheDriverUnmaps) {
  share(kLong);
  step();
  ASSERT_TRUE(wait_until([this] { return gpu_.mapped == 1; }));
  gpu_.hold_unmapping();
  say_pull(PullTalk::kUnshare, kShare);
  steps(2);
  link_->fail(Status(Code::kPeerGone, "test", "over"));
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  link_.reset();
  EXPECT_EQ(gpu_.mapped, 1);
  gpu_.release_unmapping();
}

}  // namespace
}  // namespace tcpx::testing
