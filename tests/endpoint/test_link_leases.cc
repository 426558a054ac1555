// Slots of a peer of the same host that the link uses without asking, moved step by step.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "lanes/pull/pull_lane.h"
#include "tests/support/near_link_fixture.h"
#include "tests/support/process_state.h"

namespace tcpx::testing {
namespace {

// One memory for both sides of the comparison would prove nothing: the peer's and the link's have different patterns.
class LinkLeases : public NearLinkTest {
 protected:
  static constexpr SlotId kSlot{0, 1}, kOther{5, 6};
  static constexpr uint64_t kPlace = 3, kWord = 17;

  std::atomic<uint64_t>& word(uint64_t place = kPlace) { return peer_area_.leases(false).words[place]; }
  std::atomic<uint32_t>& writing(uint64_t place = kPlace) { return peer_area_.leases(false).writing[place]; }
  /// The peer lets the link use these sources as one slot.
  void lease(const std::vector<WireSource>& sources, const SlotId& slot = kSlot, uint64_t place = kPlace,
             SlotAccess access = SlotAccess::kReadWrite) {
    word(place) = kWord;
    say_lease(place, kWord, slot, sources, access);
    steps(2);
  }
  OperationId read_of(std::vector<HeldRange> to, std::vector<WireRange> from) {
    return start(OperationKind::kRead, {.ranges = std::move(to), .remote = std::move(from)});
  }
  /// The operation is over, and the peer was not asked.
  void expect_unasked(OperationId id) {
    ASSERT_TRUE(drive([&] { return !pending(id); }));
    EXPECT_TRUE(end_of(id).is_ok());
    steps(2);
    for (const FrameType type : {FrameType::kRead, FrameType::kWrite, FrameType::kWriteData, FrameType::kGo})
      EXPECT_FALSE(hear(type));
  }
  void expect_asks(OperationId id) {
    ASSERT_TRUE(await(FrameType::kRead));
    EXPECT_TRUE(alive());
    offer_read(id, {source(0, kLong)});
    ASSERT_TRUE(pulled(true));
    EXPECT_TRUE(end_of(id).is_ok());
  }
  /// Memory of the link, and a leased slot of as many bytes at the peer.
  struct Large {
    MemoryId id;
    Bytes here, there;
  };
  Large large(size_t bytes) {
    Large memory{.id = {}, .here = Bytes(bytes, std::byte{7}), .there = Bytes(bytes)};
    memory.id = registry_.add(memory.here.data(), bytes, MemoryType::kHost).value();
    lease({{.share = kHostMemory, .address = reinterpret_cast<uint64_t>(memory.there.data()), .bytes = bytes}}, kOther, 1);
    return memory;
  }
  using NearLinkTest::write;
  OperationId write(Large& memory) {
    std::vector<HeldRange> from;
    from.emplace_back(registry_.use(memory.id).value(), memory.here.data(), memory.here.size());
    return start(OperationKind::kWrite, {.ranges = std::move(from), .remote = {{kOther, 0, memory.there.size()}}});
  }
};

TEST_F(LinkLeases, ALeasedSlotIsReadWithoutAsking) {
  lease({source(0, kPart)});
  const uint64_t before = link_->stats().bytes_received;
  expect_unasked(read(host(7, kLong)));
  EXPECT_TRUE(std::equal(peers_.begin(), peers_.begin() + kLong, host_.begin() + 7));
  EXPECT_EQ(link_->stats().bytes_received, before + kLong);
  EXPECT_EQ(peer_area_.leases(false).bytes_read, kLong) << "the peer cannot count it otherwise";
}

// Ranges here, ranges of two slots and their sources end at different places.
TEST_F(LinkLeases, RangesOfSeveralSlotsInPieces) {
  lease({source(1000, 10), source(50'000, 30'000), source(0, 990)}, kSlot, 0);
  lease({source(200'000, 20'000)}, kOther, 1023);
  std::vector<HeldRange> to;
  to.push_back(host(0, 29'000));
  to.push_back(host(30'000, 3'000));
  to.push_back(host(40'000, 990));
  const OperationId id = read_of(std::move(to), {{kSlot, 5, 29'000}, {kOther, 17'000, 3'000}, {kSlot, 30'010, 990}});
  expect_unasked(id);
  Bytes wanted;
  const auto add = [&](size_t from, size_t bytes) {
    wanted.insert(wanted.end(), peers_.begin() + static_cast<ptrdiff_t>(from),
                  peers_.begin() + static_cast<ptrdiff_t>(from + bytes));
  };
  add(1005, 5);
  add(50'000, 28'995);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), host_.begin()));
  EXPECT_TRUE(std::equal(peers_.begin() + 217'000, peers_.begin() + 220'000, host_.begin() + 30'000));
  EXPECT_TRUE(std::equal(peers_.begin(), peers_.begin() + 990, host_.begin() + 40'000));
}

// Forwards, backwards and across the ends of parts.
TEST_F(LinkLeases, RangesInAnyOrder) {
  const std::vector<WireSource> parts{source(70'000, 3'000), source(0, 40'000), source(100'000, 1), source(50'000, 9'000)};
  lease(parts);
  Bytes slot;
  for (const WireSource& part : parts) {
    const auto* const begin = reinterpret_cast<const std::byte*>(part.address);
    slot.insert(slot.end(), begin, begin + part.bytes);
  }
  std::mt19937_64 random(3);
  std::vector<HeldRange> to;
  std::vector<WireRange> from;
  Bytes wanted = host_;
  for (size_t at = 0; to.size() < 300; at += from.back().bytes + 1) {
    const uint64_t bytes = 1 + random() % 300, offset = random() % (slot.size() - bytes);
    to.push_back(host(at, bytes));
    from.push_back({kSlot, offset, bytes});
    std::copy_n(slot.begin() + static_cast<ptrdiff_t>(offset), bytes, wanted.begin() + static_cast<ptrdiff_t>(at));
  }
  expect_unasked(read_of(std::move(to), std::move(from)));
  EXPECT_EQ(host_, wanted);
}

TEST_F(LinkLeases, BeyondTheSlotAndForOtherSlotsThePeerIsAsked) {
  lease({source(0, kLong)});
  for (const auto& [slot, offset] : {std::pair{kSlot, uint64_t{1}}, {kSlot, kLong + 1}, {kSlot, ~uint64_t{0}}, {kOther, 0}}) {
    (void)read_of(one(host(0, kLong)), {{slot, offset, kLong}});
    EXPECT_TRUE(await(FrameType::kRead)) << offset;
  }
  EXPECT_TRUE(alive());
}

TEST_F(LinkLeases, AfterItsEndThePeerIsAsked) {
  lease({source(0, kPart)});
  word() = 0;
  expect_asks(read(host(0, kLong)));
  word() = kWord;
  expect_asks(read(host(0, kLong)));  // what has ended does not come back
}

TEST_F(LinkLeases, ALaterLeaseOfAPlaceEndsTheEarlierOne) {
  lease({source(0, kPart)});
  word() = kWord + 1;
  say_lease(kPlace, kWord + 1, kOther, {source(1, kLong)});
  steps(2);
  expect_asks(read(host(0, kLong)));
  expect_unasked(read_of(one(host(0, kLong)), {{kOther, 0, kLong}}));
  EXPECT_TRUE(std::equal(host_.begin(), host_.begin() + kLong, peers_.begin() + 1));
  // And of a slot, wherever it was.
  word(9) = kWord;
  say_lease(9, kWord, kOther, {source(2, kLong)});
  steps(2);
  expect_unasked(read_of(one(host(0, kLong)), {{kOther, 0, kLong}}));
  EXPECT_TRUE(std::equal(host_.begin(), host_.begin() + kLong, peers_.begin() + 2));
}

TEST_F(LinkLeases, MemoryThatIsNotThereIsAskedFor) {
  lease({{.share = kHostMemory, .address = 4096, .bytes = kPart}});
  expect_asks(read(host(0, kLong)));
  EXPECT_TRUE(has_peers(host_, kLong));
}

TEST_F(LinkLeases, AShareThatIsNotKnownIsAskedFor) {
  lease({source(0, kPart, 77)});
  expect_asks(read(host(0, kLong)));
}

TEST_F(LinkLeases, WhatAPeerHasGivenUpDoesNotCount) {
  lease({source(0, kPart)});
  peer_alive() = 0;
  const OperationId id = read(host(0, kLong));
  expect_refused(Code::kPeerGone);
  EXPECT_EQ(end_of(id).code(), Code::kPeerGone);
}

// Its bytes do not count, and in the same turn another copy fails the connection: there is nobody left to ask.
TEST_F(LinkLeases, WhatEndsInTheTurnInWhichTheLinkFailsAsksNobody) {
  void* const untouched = ::mmap(nullptr, kPart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(untouched, MAP_FAILED);
  lease({{.share = kHostMemory, .address = reinterpret_cast<uint64_t>(untouched), .bytes = kPart}});
  const OperationId id = read(host(0, kLong));
  word() = 0;
  offer_write({{.share = kHostMemory, .address = 4096, .bytes = kLong}});
  steps(1);  // neither page is there, so threads copy
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(drive([&] { return !alive(); }));
  EXPECT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_EQ(end_of(id).code(), link_->status().code());
  (void)::munmap(untouched, kPart);
}

TEST_F(LinkLeases, ALeasedSlotIsWrittenWithoutAsking) {
  lease({source(100, kPart - 100)});
  const uint64_t before = link_->stats().bytes_sent;
  expect_unasked(write(host(7, kLong)));
  EXPECT_TRUE(std::equal(host_.begin() + 7, host_.begin() + 7 + kLong, peers_.begin() + 100));
  EXPECT_EQ(link_->stats().bytes_sent, before + kLong);
  EXPECT_EQ(peer_area_.leases(false).bytes_written, kLong);
  EXPECT_EQ(writing(), 0u) << "the peer would wait for ever";
}

TEST_F(LinkLeases, PiecesAreWrittenWhereTheyBelong) {
  lease({source(1000, 10), source(50'000, 30'000)}, kSlot, 0);
  const Bytes before = peers_;
  std::vector<HeldRange> from;
  from.push_back(host(10'000, 9'000));
  from.push_back(host(30'000, 3'000));
  expect_unasked(
      start(OperationKind::kWrite, {.ranges = std::move(from), .remote = {{kSlot, 5, 9'000}, {kSlot, 20'000, 3'000}}}));
  Bytes wanted = before;
  std::copy_n(host_.begin() + 10'000, 5, wanted.begin() + 1005);
  std::copy_n(host_.begin() + 10'005, 8'995, wanted.begin() + 50'000);
  std::copy_n(host_.begin() + 30'000, 3'000, wanted.begin() + 50'000 + 20'000 - 10);
  EXPECT_EQ(peers_, wanted);
}

TEST_F(LinkLeases, ASlotIsUsedAsItWasAdvertised) {
  lease({source(0, kPart)}, kSlot, 0, SlotAccess::kRead);
  const Bytes before = peers_;
  const OperationId written = write(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  EXPECT_EQ(peers_, before);
  say_go(written, Way::kPull);
  say_done(written);
  lease({source(0, kPart)}, kOther, 1, SlotAccess::kWrite);
  (void)read_of(one(host(0, kLong)), {{kOther, 0, kLong}});
  EXPECT_TRUE(await(FrameType::kRead));
  expect_unasked(start(OperationKind::kWrite, {.ranges = one(host(0, kLong)), .remote = {{kOther, 0, kLong}}}));
}

TEST_F(LinkLeases, NothingIsWrittenAfterItsEnd) {
  lease({source(0, kPart)});
  word() = 0;
  const Bytes before = peers_;
  (void)write(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  EXPECT_EQ(peers_, before);
  EXPECT_EQ(writing(), 0u);
}

// The peer's copier does what this end must not wait for, and what is scattered too much to be looked for.
TEST_F(LinkLeases, WhatIsNotThereOrScatteredIsWrittenByThePeer) {
  lease({{.share = kHostMemory, .address = 4096, .bytes = kPart}});
  (void)write(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kWrite));
  EXPECT_TRUE(alive());
  EXPECT_EQ(writing(), 0u);
  Large longer = large(HostCopier::kAtOnceAlone + 1);
  std::vector<HeldRange> from;
  std::vector<WireRange> to;
  for (size_t at = 0; at < longer.here.size(); at += kLong) {
    const size_t bytes = std::min<size_t>(kLong, longer.here.size() - at);
    from.emplace_back(registry_.use(longer.id).value(), longer.here.data() + at, bytes);
    to.push_back({kOther, at, bytes});
  }
  const OperationId written = start(OperationKind::kWrite, {.ranges = std::move(from), .remote = std::move(to)});
  ASSERT_TRUE(await(FrameType::kWrite));
  cancel(written);
}

// A write beside other operations is left to threads, unless it is short.
TEST_F(LinkLeases, OneThatIsAloneIsWrittenByThisThreadIfItIsNotTooMuch) {
  Large longer = large(HostCopier::kAtOnceAlone);
  const size_t before = thread_count();
  expect_unasked(write(longer));
  EXPECT_EQ(longer.there, longer.here);
  EXPECT_EQ(thread_count(), before);
  const OperationId other = start(OperationKind::kRecv, {.ranges = one(host(0, kLong))});
  longer.there.assign(longer.there.size(), std::byte{0});
  expect_unasked(write(longer));
  EXPECT_EQ(longer.there, longer.here);
  EXPECT_GT(thread_count(), before);
  cancel(other);
}

TEST_F(LinkLeases, LongOnesAreWrittenByThreads) {
  Large longer = large(5 * HostCopier::kAtOnceAlone + 1);
  expect_unasked(write(longer));
  EXPECT_EQ(longer.there, longer.here);
  EXPECT_EQ(writing(1), 0u);
}

// More long ones are under way than run at once.
TEST_F(LinkLeases, ShortOnesDoNotWaitBehindLongOnes) {
  constexpr size_t kEach = 2 * HostCopier::kAtOnceAlone, kCount = 2 * PullLane::kMaxRunning;
  Large longer = large(kCount * kEach);
  lease({source(0, kPart)});
  std::vector<OperationId> long_ones;
  for (size_t i = 0; i < kCount; ++i) {
    std::byte* const here = longer.here.data() + i * kEach;
    long_ones.push_back(read_of(one({registry_.use(longer.id).value(), here, kEach}), {{kOther, i * kEach, kEach}}));
  }
  const OperationId written = write(host(kLong, kLong)), read_one = read(host(0, kLong));
  ASSERT_TRUE(drive([&] { return !pending(written) && !pending(read_one); }));
  EXPECT_LT(std::ranges::count_if(long_ones, [this](OperationId id) { return !pending(id); }), PullLane::kMaxRunning);
  EXPECT_FALSE(hear(FrameType::kWrite)) << "without the peer";
  EXPECT_TRUE(std::equal(host_.begin() + kLong, host_.begin() + 2 * kLong, peers_.begin()));
  EXPECT_TRUE(has_peers(host_, kLong));
  ASSERT_TRUE(drive([&] { return std::ranges::none_of(long_ones, [this](OperationId id) { return pending(id); }); }));
  EXPECT_EQ(longer.here, longer.there);
}

// Its number may be that of another process, into which a write would go.
TEST_F(LinkLeases, APeerThatHasEndedHasNoPages) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  host_peer_->same_process = false;
  EXPECT_NE(host_peer_->pages(), nullptr);
  host_peer_->forget_pages();
  host_peer_->process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(host_peer_->pages(), nullptr);
}

TEST_F(LinkLeases, ALongOneOfWhichAPageIsNotThereIsWrittenByThePeer) {
  constexpr size_t kBytes = 4 * HostCopier::kAtOnceAlone;
  Large longer = large(kBytes);
  auto* const page =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(longer.there.data()) + kBytes / 2) & ~uintptr_t{4095});
  ASSERT_EQ(::madvise(page, 4096, MADV_DONTNEED), 0);
  const OperationId written = write(longer);
  ASSERT_TRUE(await(FrameType::kWrite));
  EXPECT_TRUE(alive());
  EXPECT_EQ(writing(1), 0u);
  cancel(written);
}

// It is in the memory that both share when the write is done.
TEST_F(LinkLeases, ANotificationOfAWriteIsOnItsWayWhenThatIsDone) {
  lease({source(0, kPart)});
  const OperationId id =
      start(OperationKind::kWrite,
            {.ranges = one(host(0, kLong)), .remote = {{kSlot, 0, kLong}}, .notify = NotifyMsg{.name = "n", .msg = "written"}});
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_TRUE(end_of(id).is_ok());
  (void)peer_->receive(heard_);  // without a turn of the link
  EXPECT_TRUE(hear(FrameType::kNotify));
  EXPECT_TRUE(has_peers(host_, kLong));
  EXPECT_FALSE(hear(FrameType::kWriteData));
}

TEST_F(LinkLeases, ANotificationOfAWriteWaitsForTheWindow) {
  lease({source(0, kPart)});
  std::vector<OperationId> ids;
  const std::string text(NotifyMsg::kMaxTextBytes, 't');
  for (int i = 0; i < 8; ++i)
    ids.push_back(
        start(OperationKind::kWrite,
              {.ranges = one(host(0, kLong)), .remote = {{kSlot, 0, kLong}}, .notify = NotifyMsg{.name = "n", .msg = text}}));
  steps(50);
  const auto waiting = std::count_if(ids.begin(), ids.end(), [this](OperationId id) { return pending(id); });
  EXPECT_GT(waiting, 0);
  EXPECT_LT(waiting, 8);
  cancel(ids.back());
  EXPECT_EQ(end_of(ids.back()).code(), Code::kCancelled);
  for (int i = 0; i < 4; ++i) peer_->send(CreditFrame{.window = Window::kRest, .bytes = NotifyMsg::kMaxTextBytes / 2});
  steps(50);
  EXPECT_LT(std::count_if(ids.begin(), ids.end(), [this](OperationId id) { return pending(id); }), waiting - 1);
  EXPECT_TRUE(alive());
}

TEST_F(LinkLeases, ANotificationFollowsTheBytes) {
  lease({source(0, kPart)});
  const OperationId id =
      start(OperationKind::kRead,
            {.ranges = one(host(0, kLong)), .remote = {{kSlot, 0, kLong}}, .notify = NotifyMsg{.name = "n", .msg = "read"}});
  expect_unasked(id);
  EXPECT_TRUE(await(FrameType::kNotify));
}

TEST_F(LinkLeases, NonsenseIsRefused) {
  const WireSource whole = source(0, kLong);
  const std::vector<WireSource> wraps{{.share = kHostMemory, .address = ~uint64_t{0} - 10, .bytes = 100}},
      empty{{.share = kHostMemory, .address = 4096, .bytes = 0}},
      too_much{{.share = kHostMemory, .address = 4096, .bytes = uint64_t{1} << 63},
               {.share = kHostMemory, .address = 4096, .bytes = uint64_t{1} << 63}};
  for (const auto& [place, sources] : {std::pair{LeaseWords::kMost, std::vector{whole}},
                                       {~uint64_t{0}, std::vector{whole}},
                                       {kPlace, std::vector<WireSource>()},
                                       {kPlace, wraps},
                                       {kPlace, empty},
                                       {kPlace, too_much}}) {
    renew(make_host(true));
    say_lease(place, kWord, kSlot, sources);
    expect_refused();
  }
  renew(make_host(true));
  say_pull(PullTalk::kLease, kPlace, std::as_bytes(std::span(&whole, 1)).first(7));
  expect_refused();
}

TEST_F(LinkLeases, WhatAPeerCanMakeItHoldIsBounded) {
  std::vector<WireSource> sources(kMaxLeaseSources, source(0, 64));
  for (uint64_t place = 0; place < LeaseWords::kMost; ++place) {
    word(place) = kWord;
    say_lease(place, kWord, {place + 1, 1}, sources);
    step();
  }
  steps(20);
  ASSERT_TRUE(alive());
  const auto asks = [this](uint64_t place) {
    constexpr uint64_t kSlotBytes = kMaxLeaseSources * 64;
    const OperationId id = read_of(one(host(0, kSlotBytes)), {{{place + 1, 1}, 0, kSlotBytes}});
    steps(3);
    const bool asked = hear(FrameType::kRead).has_value();
    if (!asked) expect_unasked(id);
    return asked;
  };
  EXPECT_FALSE(asks(0) && asks(1)) << "the first ones are used";
  EXPECT_TRUE(asks(LeaseWords::kMost - 1));
}

TEST_F(LinkLeases, ThereAreNoneWithChecksums) {
  sum_key_ = std::make_shared<const ByteSumKey>(1);
  renew(make_host(true));
  lease({source(0, kPart)});
  (void)read(host(0, kLong));
  EXPECT_TRUE(await(FrameType::kRead));
}

}  // namespace
}  // namespace tcpx::testing
