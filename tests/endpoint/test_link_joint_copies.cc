// Copies by lease that both ends make: the link begins one and the test is the helper, or the other way round.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "tests/support/near_link_fixture.h"

namespace tcpx::testing {
namespace {

/// Two slices of memory, all of whose pages are present. Nobody may access one of the slices.
class HalfUnreadable {
 public:
  static constexpr size_t kBytes = 2 * JointCopy::kSliceBytes;
  explicit HalfUnreadable(size_t slice)
      : data_(static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::fill_n(data_, kBytes, std::byte{1});
    EXPECT_EQ(::mprotect(data_ + slice * JointCopy::kSliceBytes, JointCopy::kSliceBytes, PROT_NONE), 0);
  }
  HalfUnreadable(const HalfUnreadable&) = delete;
  HalfUnreadable& operator=(const HalfUnreadable&) = delete;
  ~HalfUnreadable() { ::munmap(data_, kBytes); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }

 private:
  std::byte* const data_;
};

class JointLinkTest : public NearLinkTest {
 protected:
  static constexpr size_t kBytes = 32 * JointCopy::kSliceBytes, kSlice = JointCopy::kSliceBytes;
  explicit JointLinkTest(size_t copy_threads = 1) : NearLinkTest(copy_threads) {}

  HeldRange mine(size_t offset = 0, size_t bytes = kBytes) { return {registry_.use(id_).value(), mine_.data() + offset, bytes}; }

  Bytes mine_ = pattern(kBytes, 11), peers_own_ = pattern(kBytes, 12);
  const MemoryId id_ = registry_.add(mine_.data(), kBytes, MemoryType::kHost).value();
};

class LinkBeginsJointCopies : public JointLinkTest {
 protected:
  using JointLinkTest::JointLinkTest;
  static constexpr SlotId kSlot{0, 1};
  using Asked = std::optional<std::pair<uint32_t, WireJoint>>;

  /// The peer lets the link use its memory.
  void lease(SlotAccess access = SlotAccess::kReadWrite) {
    peer_area_.leases(false).words[0] = 17;
    say_lease(0, 17, kSlot, {{.share = kHostMemory, .address = reinterpret_cast<uint64_t>(peers_own_.data()), .bytes = kBytes}},
              access);
    steps(2);
  }
  OperationId begin(OperationKind kind, size_t bytes = kBytes) {
    return start(kind, {.ranges = one(mine(0, bytes)), .remote = {{kSlot, 0, bytes}}});
  }
  /// The number of the copy that the link asks the peer to join, and its words.
  Asked asked() {
    (void)peer_->receive(heard_);
    const auto heard = hear_pull(PullTalk::kJoin);
    if (!heard) return std::nullopt;
    const auto& [header, words] = *heard;
    WireJoint joint{};
    EXPECT_EQ(words.size(), sizeof joint);
    std::memcpy(&joint, words.data(), sizeof joint);
    return std::pair(static_cast<uint32_t>(header.operation), joint);
  }
  /// The peer's end of that copy.
  JointCopy helper(const Asked& asked) {
    auto* const theirs = reinterpret_cast<std::byte*>(asked->second.address);
    std::byte* const own = peers_own_.data() + asked->second.offset;
    const bool writes = asked->second.writes == 1;
    return JointCopy(peer_area_.joint(true), asked->first, true,
                     {writes ? own : theirs, writes ? theirs : own, asked->second.bytes});
  }
  std::atomic<uint32_t>& writing() { return peer_area_.leases(false).writing[0]; }
  FrameType question(OperationKind kind) { return kind == OperationKind::kRead ? FrameType::kRead : FrameType::kWrite; }
  static constexpr OperationKind kBoth[] = {OperationKind::kWrite, OperationKind::kRead};
};

TEST_F(LinkBeginsJointCopies, ThePeerCopiesWhatItTakes) {
  lease();
  for (const OperationKind kind : kBoth) {
    const bool writes = kind == OperationKind::kWrite;
    Bytes& target = writes ? peers_own_ : mine_;
    Bytes wanted = writes ? mine_ : peers_own_;
    const OperationId id = begin(kind);
    const Asked joint = asked();
    ASSERT_TRUE(joint);
    EXPECT_EQ(joint->second.slot, kSlot);
    EXPECT_EQ(joint->second.bytes, kBytes);
    EXPECT_EQ(joint->second.address, reinterpret_cast<uint64_t>(mine_.data()));
    EXPECT_EQ(joint->second.writes, writes ? 1u : 0u);
    JointCopy helper = this->helper(joint);
    const auto slice = helper.take();
    ASSERT_TRUE(slice) << "the link has copied all of it in one go";
    steps(60);
    EXPECT_FALSE(helper.take()) << "by now the link has taken the others";
    EXPECT_TRUE(pending(id)) << "the peer still copies";
    EXPECT_EQ(writing(), writes ? 1u : 0u);
    // Bytes that neither end has show who has copied them.
    std::fill_n(slice->to, slice->bytes, std::byte{0x5a});
    std::fill_n(wanted.end() - static_cast<ptrdiff_t>(slice->bytes), slice->bytes, std::byte{0x5a});
    helper.end_slice(true);
    ASSERT_TRUE(drive([&] { return !pending(id); }));
    EXPECT_TRUE(end_of(id).is_ok());
    EXPECT_EQ(target, wanted);
    EXPECT_EQ(writing(), 0u);
    EXPECT_FALSE(hear(question(kind)));
  }
  EXPECT_EQ(peer_area_.leases(false).bytes_written, kBytes);
  EXPECT_EQ(peer_area_.leases(false).bytes_read, kBytes);
}

TEST_F(LinkBeginsJointCopies, AloneIfThePeerDoesNotCome) {
  lease();
  for (const OperationKind kind : kBoth) {
    const Bytes wanted = kind == OperationKind::kWrite ? mine_ : peers_own_;
    const OperationId id = begin(kind);
    ASSERT_TRUE(asked());
    ASSERT_TRUE(drive([&] { return !pending(id); }));
    EXPECT_TRUE(end_of(id).is_ok());
    EXPECT_EQ(kind == OperationKind::kWrite ? peers_own_ : mine_, wanted);
    EXPECT_FALSE(hear(question(kind)));
  }
}

// 1 MiB is over when its call returns, as a copy by the link alone is.
TEST_F(LinkBeginsJointCopies, AShortOneIsOverAtOnce) {
  lease();
  const OperationId id = begin(OperationKind::kWrite, 2 * kSlice);
  EXPECT_TRUE(std::equal(mine_.begin(), mine_.begin() + 2 * kSlice, peers_own_.begin()));
  steps(1);
  EXPECT_FALSE(pending(id));
  EXPECT_TRUE(asked());
}

TEST_F(LinkBeginsJointCopies, WhatThePeerCouldNotCopyIsAskedFor) {
  for (const OperationKind kind : kBoth) {
    lease();
    const OperationId id = begin(kind);
    JointCopy helper = this->helper(asked());
    ASSERT_TRUE(helper.take());
    helper.end_slice(false);
    ASSERT_TRUE(await(question(kind)));
    EXPECT_TRUE(alive() && pending(id));
    EXPECT_EQ(writing(), 0u);
    renew(make_host(true));
    EXPECT_FALSE(end_of(id).is_ok());
  }
}

// Memory that only its own process can read, for instance.
TEST_F(LinkBeginsJointCopies, APeerThatCouldNotCopyIsNotAskedToAgain) {
  lease();
  const OperationId first = begin(OperationKind::kWrite);
  JointCopy helper = this->helper(asked());
  ASSERT_TRUE(helper.take());
  helper.end_slice(false);
  ASSERT_TRUE(await(FrameType::kWrite));
  say_go(first, Way::kPull);
  say_done(first);
  ASSERT_TRUE(drive([&] { return !pending(first); }));
  EXPECT_TRUE(end_of(first).is_ok());
  const OperationId second = begin(OperationKind::kRead);
  ASSERT_TRUE(drive([&] { return !pending(second); }));
  EXPECT_TRUE(end_of(second).is_ok());
  EXPECT_FALSE(asked());
  EXPECT_EQ(mine_, peers_own_);
}

TEST_F(LinkBeginsJointCopies, WhatIsNotThereIsAskedForAndTheLeaseLasts) {
  void* const untouched = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(untouched, MAP_FAILED);
  peer_area_.leases(false).words[0] = 17;
  say_lease(0, 17, kSlot, {{.share = kHostMemory, .address = reinterpret_cast<uint64_t>(untouched), .bytes = kBytes}});
  steps(2);
  const OperationId first = begin(OperationKind::kRead);
  ASSERT_TRUE(await(FrameType::kRead));
  ASSERT_TRUE(asked());
  offer_read(first, {{.share = kHostMemory, .address = reinterpret_cast<uint64_t>(peers_own_.data()), .bytes = kBytes}}, kBytes);
  ASSERT_TRUE(drive([&] { return !pending(first); }));
  EXPECT_TRUE(end_of(first).is_ok());
  EXPECT_EQ(mine_, peers_own_);
  (void)begin(OperationKind::kRead);
  EXPECT_TRUE(asked()) << "it is tried again";
  ::munmap(untouched, kBytes);
}

TEST_F(LinkBeginsJointCopies, ALeaseThatEndsMeanwhileIsAskedFor) {
  lease();
  const OperationId id = begin(OperationKind::kRead);
  JointCopy helper = this->helper(asked());
  ASSERT_TRUE(helper.take());
  peer_area_.leases(false).words[0] = 0;
  helper.end_slice(true);
  ASSERT_TRUE(await(FrameType::kRead));
  EXPECT_TRUE(pending(id));
}

// What the peer may still write to is not given back.
TEST_F(LinkBeginsJointCopies, AFailedLinkWaitsForThePeersSlice) {
  lease();
  const OperationId id = begin(OperationKind::kRead);
  JointCopy helper = this->helper(asked());
  ASSERT_TRUE(helper.take());
  link_->fail(Status(Code::kCancelled, "test", "it fails"));
  steps(1);
  EXPECT_FALSE(helper.take()) << "and lets it begin no other";
  steps(20);
  EXPECT_TRUE(pending(id));
  EXPECT_FALSE(link_->closed());
  helper.end_slice(true);
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(end_of(id).code(), Code::kCancelled);
}

TEST_F(LinkBeginsJointCopies, APeerThatHasEndedIsNotWaitedFor) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  lease();
  const OperationId id = begin(OperationKind::kRead);
  JointCopy helper = this->helper(asked());
  ASSERT_TRUE(helper.take());
  steps(60);
  EXPECT_TRUE(pending(id));
  host_peer_->same_process = false;
  host_peer_->process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_EQ(end_of(id).code(), Code::kPeerGone);
}

TEST_F(LinkBeginsJointCopies, NotBesideOthersOrOfManyPiecesOrLittle) {
  lease();
  const auto joins = [&](std::vector<HeldRange> ranges, std::vector<WireRange> slots) {
    const OperationId id = start(OperationKind::kRead, {.ranges = std::move(ranges), .remote = std::move(slots)});
    EXPECT_TRUE(drive([&] { return !pending(id); }));
    EXPECT_TRUE(end_of(id).is_ok());
    return asked().has_value();
  };
  EXPECT_TRUE(joins(one(mine()), {{kSlot, 0, kBytes}}));
  EXPECT_FALSE(joins(one(mine(0, 2 * kSlice - 1)), {{kSlot, 0, 2 * kSlice - 1}}));
  std::vector<HeldRange> two;
  two.push_back(mine(0, kBytes / 4));
  two.push_back(mine(kBytes / 2, kBytes / 4));
  EXPECT_FALSE(joins(std::move(two), {{kSlot, 0, kBytes / 4}, {kSlot, kBytes / 2, kBytes / 4}}));
  const OperationId other = start(OperationKind::kRead, {.ranges = one(host(0, kLong)), .remote = {{{5, 5}, 0, kLong}}});
  EXPECT_FALSE(joins(one(mine()), {{kSlot, 0, kBytes}}));
  cancel(other);
}

class LinkOfManyCoresBeginsJointCopies : public LinkBeginsJointCopies {
 protected:
  LinkOfManyCoresBeginsJointCopies() : LinkBeginsJointCopies(8) {}
};

TEST_F(LinkOfManyCoresBeginsJointCopies, OnlyWhatItsThreadsWouldNotShare) {
  constexpr size_t kLeastByThreads = 2 * HostCopy::kTableBytes;
  lease();
  for (const OperationKind kind : kBoth) {
    for (const size_t bytes : {kLeastByThreads - 1, kLeastByThreads}) {
      const OperationId id = begin(kind, bytes);
      EXPECT_TRUE(drive([&] { return !pending(id); }));
      EXPECT_TRUE(end_of(id).is_ok());
      EXPECT_EQ(asked().has_value(), bytes < kLeastByThreads) << bytes;
    }
  }
}

TEST_F(LinkBeginsJointCopies, NotWithAPeerThatCannotReadOrWhoseEndCouldNotBeSeen) {
  for (const bool reads : {false, true}) {
    renew(make_host(true));
    lease();
    host_peer_->is_read = reads;
    host_peer_->same_process = !reads;
    const OperationId id = begin(OperationKind::kRead);
    ASSERT_TRUE(drive([&] { return !pending(id); }));
    EXPECT_TRUE(end_of(id).is_ok());
    EXPECT_FALSE(asked());
  }
}

// At each place where it asks for memory: the connection may end, or the peer is asked.
TEST_F(LinkBeginsJointCopies, WantOfMemoryLosesNothing) {
  Gate now{.open = true, .failure = {}};
  bool refused = true;
  uint64_t refusals = 0;
  for (; refused; ++refusals) {
    renew(make_host(true));
    lease();
    const OperationId id =
        start(OperationKind::kWrite, {.ranges = one(mine(0, 2 * kSlice)), .remote = {{kSlot, 0, 2 * kSlice}}, .after = &now});
    refused = progress_without_memory(refusals);
    steps(5);
    if (hear(FrameType::kWrite)) {
      say_go(id, Way::kPull);
      say_done(id);
    } else if (alive()) {
      EXPECT_TRUE(std::equal(mine_.begin(), mine_.begin() + 2 * kSlice, peers_own_.begin()));
    }
    ASSERT_TRUE(drive([&] { return !pending(id); })) << "after " << refusals << " allocations; " << link_->flight_record();
    const Status end = end_of(id);
    EXPECT_TRUE(end.is_ok() || end.code() == Code::kExhausted) << end.to_string();
    EXPECT_EQ(writing(), 0u);
  }
  EXPECT_GT(refusals, 3u) << "nothing was tried";
}

// The bytes of a slice that could not be copied are not counted as copied, though there was no memory to say why.
TEST_F(LinkBeginsJointCopies, WantOfMemoryForgetsNoSlice) {
  const HalfUnreadable memory(0);
  Gate now{.open = true, .failure = {}};
  bool refused = true, asked = false;
  for (uint64_t refusals = 0; refused; ++refusals) {
    renew(make_host(true));
    peer_area_.leases(false).words[0] = 17;
    say_lease(0, 17, kSlot, {{.share = kHostMemory, .address = memory.address(), .bytes = HalfUnreadable::kBytes}});
    steps(2);
    const OperationId id =
        start(OperationKind::kRead,
              {.ranges = one(mine(0, HalfUnreadable::kBytes)), .remote = {{kSlot, 0, HalfUnreadable::kBytes}}, .after = &now});
    refused = progress_without_memory(refusals, 1);
    steps(5);
    asked = hear(FrameType::kRead).has_value();
    ASSERT_TRUE(asked || drive([&] { return !pending(id); })) << "after " << refusals << " allocations";
    renew(make_host(true));
    EXPECT_FALSE(end_of(id).is_ok()) << "after " << refusals << " allocations";
  }
  EXPECT_TRUE(asked) << "in the end";
}

// It may use its memory for something else by now.
TEST_F(LinkBeginsJointCopies, NothingMoreForAPeerThatHasGivenUp) {
  lease();
  const OperationId id = begin(OperationKind::kWrite);
  JointCopy helper = this->helper(asked());
  ASSERT_TRUE(helper.take()) << "the link has copied all of it in one go";
  peer_alive() = 0;
  const Bytes then = peers_own_;
  steps(60);
  EXPECT_EQ(peers_own_, then);
  EXPECT_TRUE(pending(id)) << "the peer still copies";
  helper.end_slice(true);
  ASSERT_TRUE(drive([&] { return !pending(id); }));
  EXPECT_EQ(end_of(id).code(), Code::kPeerGone);
}

TEST_F(LinkBeginsJointCopies, ThePeerIsNotAskedTheWrongWayRound) {
  say_raw(make_header(FrameType::kLane, 1, static_cast<uint64_t>(PullTalk::kJoin), 0, Packing::kWhole, Way::kPull), {});
  expect_refused();
}

class LinkHelpsJointCopies : public JointLinkTest {
 protected:
  SlotId advertised(SlotAccess access = SlotAccess::kReadWrite) {
    return registry_.advertise(kConn, id_, mine_.data(), kBytes, access, nullptr, nullptr).value().id;
  }
  /// A slot of the link that the peer, which is the test, uses without asking.
  SlotId leased() {
    const SlotId slot = advertised();
    OperationPayload payload;
    payload.ranges = {{slot, 0, kShort}};
    payload.data = std::span(mine_).first(kShort);
    say_inline(FrameType::kWriteData, kOperation, 0, payload);
    EXPECT_TRUE(await(FrameType::kDone));
    steps(3);
    return slot;
  }
  WireJoint asked(const SlotId& slot, bool writes, uint64_t offset = 0, uint64_t bytes = kBytes) const {
    return {.slot = slot,
            .offset = offset,
            .bytes = bytes,
            .address = reinterpret_cast<uint64_t>(peers_own_.data()),
            .writes = writes ? 1u : 0u};
  }
  void say_join(uint64_t number, const WireJoint& joint) {
    say_pull(PullTalk::kJoin, number, std::as_bytes(std::span(&joint, 1)));
  }
  /// The peer's end of that copy.
  JointCopy begun(uint32_t number, const WireJoint& joint) {
    auto* const theirs = reinterpret_cast<std::byte*>(joint.address);
    std::byte* const own = mine_.data() + joint.offset;
    JointCopy copy(peer_area_.joint(false), number, false,
                   {joint.writes == 1 ? own : theirs, joint.writes == 1 ? theirs : own, joint.bytes});
    copy.begin();
    return copy;
  }
  /// The same, which the link has been asked to join.
  JointCopy joined(const WireJoint& joint) {
    const JointCopy own = begun(1, joint);
    say_join(1, joint);
    return own;
  }
};

TEST_F(LinkHelpsJointCopies, ItCopiesFromTheBack) {
  const SlotId slot = leased();
  uint32_t number = 0;
  for (const bool writes : {true, false}) {
    peers_own_ = pattern(kBytes, 20 + number);
    Bytes& target = writes ? mine_ : peers_own_;
    const Bytes before = target, source = writes ? peers_own_ : mine_;
    const WireJoint joint = asked(slot, writes, 3 * kSlice, kBytes - 3 * kSlice);
    JointCopy own = begun(++number, joint);
    const auto first = own.take();
    ASSERT_TRUE(first);
    say_join(number, joint);
    ASSERT_TRUE(drive([&] { return own.is_over(); }));
    EXPECT_FALSE(own.take());
    EXPECT_TRUE(own.is_whole());
    Bytes wanted = before;
    const auto at = [&](Bytes& bytes, bool is_slot) { return bytes.begin() + static_cast<ptrdiff_t>(is_slot ? 3 * kSlice : 0); };
    Bytes from = source;
    std::copy_n(at(from, !writes) + static_cast<ptrdiff_t>(first->bytes), joint.bytes - first->bytes,
                at(wanted, writes) + static_cast<ptrdiff_t>(first->bytes));
    EXPECT_EQ(target, wanted) << "all but what the other end has taken, and nothing else";
  }
}

// A few slices in a turn, and the region is held from the first to the last.
TEST_F(LinkHelpsJointCopies, OthersHaveTheirTurnMeanwhile) {
  JointCopy own = joined(asked(leased(), true));
  steps(2);
  EXPECT_FALSE(own.is_over());
  EXPECT_TRUE(link_->serves(id_));
  EXPECT_EQ(registry_.try_remove(id_).status().code(), Code::kExhausted);
  ASSERT_TRUE(drive([&] { return own.is_over(); }));
  steps(2);
  EXPECT_FALSE(link_->serves(id_));
  EXPECT_EQ(mine_, peers_own_);
}

TEST_F(LinkHelpsJointCopies, AFailedLinkCopiesNothing) {
  JointCopy own = joined(asked(leased(), true));
  steps(2);
  const Bytes then = mine_;
  link_->fail(Status(Code::kCancelled, "test", "it fails"));
  ASSERT_TRUE(drive([&] { return link_->closed(); }));
  steps(5);
  EXPECT_EQ(mine_, then);
  own.give_up();
  EXPECT_TRUE(own.is_over()) << "what it had taken, it has copied";
}

TEST_F(LinkHelpsJointCopies, NothingMoreForAPeerThatHasGivenUp) {
  JointCopy own = joined(asked(leased(), false));
  steps(2);
  ASSERT_TRUE(own.take()) << "it goes on";
  peer_alive() = 0;
  const Bytes then = peers_own_;
  steps(5);
  EXPECT_EQ(peers_own_, then);
  EXPECT_FALSE(link_->serves(id_));
}

TEST_F(LinkHelpsJointCopies, OfMemoryThatIsNotThereItSaysSo) {
  WireJoint joint = asked(leased(), true);
  void* const nothing = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  joint.address = reinterpret_cast<uint64_t>(nothing);
  const Bytes before = mine_;
  JointCopy own = joined(joint);
  steps(3);
  own.give_up();
  EXPECT_TRUE(own.is_over());
  EXPECT_EQ(peer_area_.joint(false).failed, 1u);
  EXPECT_EQ(mine_, before);
  EXPECT_TRUE(alive());
  (void)::munmap(nothing, kBytes);
}

// The peer waits for the end of each slice, whatever becomes of the link.
TEST_F(LinkHelpsJointCopies, WantOfMemoryLeavesNoSliceOpen) {
  const HalfUnreadable memory(1);
  bool refused = true;
  for (uint64_t refusals = 0; refused; ++refusals) {
    renew(make_host(true));
    WireJoint joint = asked(leased(), true, 0, HalfUnreadable::kBytes);
    joint.address = memory.address();
    JointCopy own = joined(joint);
    (void)peer_->flush();
    refused = progress_without_memory(refusals, 1);
    own.give_up();
    EXPECT_TRUE(own.is_over()) << "after " << refusals << " allocations";
  }
}

// The peer is not believed, and may be late.
TEST_F(LinkHelpsJointCopies, WhatItMayNotCopyItLeaves) {
  const SlotId slot = leased(), unknown{77, 78},
               not_leased =
                   registry_.advertise(kConn, id_, mine_.data(), kBytes / 2, SlotAccess::kReadWrite, nullptr, nullptr).value().id;
  const SlotId to_read = advertised(SlotAccess::kRead);
  OperationPayload payload;
  payload.ranges = {{to_read, 0, kShort}};
  say(FrameType::kRead, kOperation + 1, 0, kShort, Packing::kWhole, &payload);
  ASSERT_TRUE(await(FrameType::kReadData));
  steps(3);
  const Bytes before = mine_;
  const auto touches = [&](const SlotId& which, uint32_t said, uint32_t number) {
    const WireJoint joint = asked(which, true, 0, kBytes / 2);
    JointCopy own = begun(number, joint);
    say_join(said, joint);
    steps(40);
    const bool touched = mine_ != before || !own.take();
    std::copy(before.begin(), before.end(), mine_.begin());
    return touched;
  };
  EXPECT_FALSE(touches(unknown, 1, 1));
  EXPECT_FALSE(touches(not_leased, 2, 2));
  EXPECT_FALSE(touches(to_read, 3, 3));
  EXPECT_FALSE(touches(slot, 3, 4)) << "a message about another copy";
  ASSERT_TRUE(registry_.withdraw(slot).is_ok());
  EXPECT_FALSE(touches(slot, 5, 5));
  EXPECT_TRUE(alive());
}

TEST_F(LinkHelpsJointCopies, NonsenseIsRefused) {
  const auto refuses = [&](auto change, uint64_t number = 1) {
    renew(make_host(true));
    WireJoint joint = asked(leased(), true);
    change(joint);
    say_join(number, joint);
    expect_refused();
  };
  refuses([](WireJoint& joint) { joint.bytes = 0; });
  refuses([](WireJoint& joint) { joint.bytes = JointCopy::kMostBytes + 1; });
  refuses([](WireJoint& joint) { joint.offset = 1; });
  refuses([](WireJoint& joint) { joint.offset = ~uint64_t{0}; });
  refuses([](WireJoint& joint) { joint.writes = 2; });
  refuses([](WireJoint& joint) { joint.address = ~uint64_t{0} - 10; });
  refuses([](WireJoint&) {}, uint64_t{1} << 32);
  refuses([](WireJoint&) {}, 0);
  renew(make_host(true));
  const WireJoint joint = asked(leased(), true);
  say_pull(PullTalk::kJoin, 1, std::as_bytes(std::span(&joint, 1)).first(47));
  expect_refused();
}

}  // namespace
}  // namespace tcpx::testing
