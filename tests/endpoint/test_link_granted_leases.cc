// Slots of the link that a peer of the same host uses without asking: when it is let, and until when.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/near_link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkGrantedLeases : public NearLinkTest {
 protected:
  using Given = std::optional<std::pair<FrameHeader, WireLease>>;
  /// The lease that the link gives. @param sources gets those of the slot
  Given given(std::vector<WireSource>& sources) {
    const auto heard = hear_pull(PullTalk::kLease);
    if (!heard) return std::nullopt;
    const auto& [header, words] = *heard;
    WireLease lease;
    EXPECT_GT(words.size(), sizeof lease);
    std::memcpy(&lease, words.data(), sizeof lease);
    sources = WireArray<WireSource>(std::span(words).subspan(sizeof lease)).to_vector();
    return std::pair(header, lease);
  }
  Given given() {
    std::vector<WireSource> sources;
    return given(sources);
  }
  /// The same, after a read of the peer.
  Given given_after_read(std::vector<WireSource>& sources) {
    ask(FrameType::kRead, kOperation);
    EXPECT_TRUE(await(FrameType::kReady));
    steps(3);
    return given(sources);
  }
  Given given_after_read() {
    std::vector<WireSource> sources;
    return given_after_read(sources);
  }
};

TEST_F(LinkGrantedLeases, WhatThePeerHasReadItMayReadAgain) {
  std::vector<WireSource> sources;
  const auto lease = given_after_read(sources);
  ASSERT_TRUE(lease);
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0].address, reinterpret_cast<uint64_t>(host_.data()));
  EXPECT_EQ(sources[0].bytes, kLong) << "the slot, and nothing behind it";
  auto& word = peer_area_.leases(true).words[lease->first.operation];
  EXPECT_EQ(word, lease->second.word);
  ask(FrameType::kRead, kOperation + 1);
  ASSERT_TRUE(await(FrameType::kReady));
  steps(1);
  EXPECT_FALSE(given()) << "twice";
  peer_area_.leases(true).bytes_read = 5;
  EXPECT_EQ(link_->stats().bytes_sent, 5u);
  ASSERT_TRUE(registry_.withdraw(lease->second.slot).is_ok());
  EXPECT_EQ(word, 0u);
}

TEST_F(LinkGrantedLeases, ShortReadsLeadToLeasesToo) {
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, kShort)};
  say(FrameType::kRead, kOperation, 0, kShort, Packing::kWhole, &payload);
  ASSERT_TRUE(await(FrameType::kReadData));
  steps(1);
  EXPECT_TRUE(given());
}

TEST_F(LinkGrantedLeases, TheEndOfTheLinkEndsThem) {
  const auto lease = given_after_read();
  ASSERT_TRUE(lease);
  auto& word = peer_area_.leases(true).words[lease->first.operation];
  EXPECT_NE(word, 0u);
  peer_->send(ByeFrame{});
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(word, 0u);
}

TEST_F(LinkGrantedLeases, WritesLeadToLeasesToo) {
  offer_write({source(0, kLong)});
  ASSERT_TRUE(await(FrameType::kDone));
  steps(1);
  EXPECT_TRUE(given());
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 10, kShort)};
  payload.data = std::span(peers_).first(kShort);
  say_inline(FrameType::kWriteData, kOperation + 1, 0, payload);
  ASSERT_TRUE(await(FrameType::kDone));
  steps(1);
  EXPECT_TRUE(given());
}

TEST_F(LinkGrantedLeases, OfMemoryWhoseEndsNobodyHasTouchedOnceAThreadHasReadThem) {
  constexpr size_t kBytes = 1 << 20;
  auto* const data = static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(::madvise(data, kBytes, MADV_NOHUGEPAGE), 0);
  const MemoryId id = registry_.add(data, kBytes, MemoryType::kHost).value();
  const auto slot = registry_.advertise(kConn, id, data + kBytes / 2, kShort, SlotAccess::kReadWrite, nullptr, nullptr);
  const WireRange middle{slot.value().id, 0, kShort};
  uint64_t operation = kOperation;
  const auto leads_to_one = [&] {
    OperationPayload payload;
    payload.ranges = {middle};
    payload.data = std::span(peers_).first(kShort);
    say_inline(FrameType::kWriteData, ++operation, 0, payload);
    EXPECT_TRUE(await(FrameType::kDone));
    steps(1);
    return given().has_value();
  };
  EXPECT_FALSE(leads_to_one()) << "reading them could hang";
  const Deadline soon = Deadline::after(kTestDeadline);
  bool leased = false;
  while (!leased && !soon.expired()) leased = leads_to_one();
  EXPECT_TRUE(leased);
  EXPECT_TRUE(std::equal(peers_.begin(), peers_.begin() + kShort, data + kBytes / 2));
  EXPECT_EQ(data[0], std::byte{0});
  link_->fail(Status(Code::kCancelled, "test", "it ends"));
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  ASSERT_TRUE(registry_.remove(id, Deadline::after(kTestDeadline)).is_ok());
  ::munmap(data, kBytes);
}

// The link has failed, and its peer still writes into its memory.
TEST_F(LinkGrantedLeases, AFailedLinkWaitsForWhoWrites) {
  const auto lease = given_after_read();
  ASSERT_TRUE(lease);
  say_go(OperationId{kOperation}, Way::kPull, true);
  steps(3);
  EXPECT_FALSE(link_->serves(host_id_)) << "nobody writes";
  LeaseWords& words = peer_area_.leases(true);
  words.writing[lease->first.operation] = 1;
  EXPECT_TRUE(link_->serves(host_id_));
  link_->fail(Status(Code::kCancelled, "test", "it fails"));
  EXPECT_EQ(words.words[lease->first.operation], 0u);
  steps(20);
  EXPECT_FALSE(link_->closed());
  EXPECT_TRUE(link_->serves(host_id_));
  EXPECT_EQ(registry_.remove(host_id_, Deadline(TimePoint{})).status().code(), Code::kTimeout);
  words.writing[lease->first.operation] = 0;
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_FALSE(link_->serves(host_id_));
}

TEST_F(LinkGrantedLeases, WhoseEndCouldNotBeSeenMayReadAlone) {
  host_peer_->same_process = false;
  const auto lease = given_after_read();
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->second.access, static_cast<uint64_t>(SlotAccess::kRead));
}

TEST_F(LinkGrantedLeases, AWriterThatHasEndedIsNotWaitedFor) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const auto lease = given_after_read();
  ASSERT_TRUE(lease);
  peer_area_.leases(true).writing[lease->first.operation] = 1;
  host_peer_->same_process = false;
  host_peer_->process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  link_->fail(Status(Code::kPeerGone, "test", "it has ended"));
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_TRUE(registry_.remove(host_id_, Deadline::after(kTestDeadline)).is_ok());
}

TEST_F(LinkGrantedLeases, ThereAreNoneWithChecksums) {
  sum_key_ = std::make_shared<const ByteSumKey>(1);
  renew(make_host(true));
  EXPECT_FALSE(given_after_read());
}

TEST_F(LinkGrantedLeases, MemoryThatThePeerCannotReadHasNone) {
  renew(make_host(false));
  EXPECT_FALSE(given_after_read());
}

}  // namespace
}  // namespace tcpx::testing
