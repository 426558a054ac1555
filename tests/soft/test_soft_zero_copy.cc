// Sends that the kernel makes from staging slots without a copy: slots that it still reads, and kernels that copy anyway or refuse.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <random>

#include "base/log.h"
#include "tests/support/staged_sends.h"

namespace tcpx::testing {
namespace {

class SoftZeroCopy : public SoftStaging {
 protected:
  SoftZeroCopy() { spare_copies_ = true; }
  void TearDown() override {
    EXPECT_TRUE(all_slots_come_back()) << staging_->free_count();
    SoftStaging::TearDown();
  }
};

TEST_F(SoftZeroCopy, ChangesNoByte) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    SCOPED_TRACE(seed);
    auto sender = make(seed % 3 == 0 ? 4 * kMiB : kPageBytes << random() % 9, 4 * kMiB, seed, 0, 1 + random() % 3);
    for (uint32_t i = 0; i < 12; ++i) {
      const size_t bytes = random() % 3 == 0 ? random() % 3000 : random() % (2 * kMiB);
      sender->post(random() % (2 * kMiB), bytes);
    }
    EXPECT_TRUE(wait_until([&] { return random() % 64 == 0 && sender->read(); }));
    sender->expect_arrived_and_done();
    EXPECT_TRUE(all_slots_come_back()) << "the comm is still open";
  }
}

// Here the kernel reads the slots only when the peer makes room, and in between its queue is nothing but references to them.
TEST_F(SoftZeroCopy, NoSlotIsReusedThatTheKernelReads) {
  auto unread = make_unread(1);
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 1) << "this test shows nothing";
  send_through_all_slots(2);
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 1);
  unread->expect_arrived();
}

TEST_F(SoftZeroCopy, NoSlotIsReusedThatTheKernelReadsForAClosedComm) {
  auto unread = make_unread(1);
  unread->comm.reset();
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 1) << "this test shows nothing";
  send_through_all_slots(2);
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 1);
  unread->expect_arrived();
  EXPECT_TRUE(is_dropped(unread->wire.theirs.data[0])) << "closing ends the stream";
}

// The last comm takes the pool with it.
TEST_F(SoftZeroCopy, BytesArriveThoughThePoolIsGone) {
  auto unread = make_unread(1);
  unread->comm.reset();
  staging_ = std::make_shared<StagingPool>(memory_, 0);
  send_through_all_slots(2);
  unread->expect_arrived();
}

TEST_F(SoftZeroCopy, APeerThatEndsGivesTheSlotsBack) {
  auto open = make_unread(1), closed = make_unread(2);
  closed->comm.reset();
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - 2);
  open->wire.theirs = {};
  closed->wire.theirs = {};
  EXPECT_TRUE(all_slots_come_back());
}

TEST_F(SoftZeroCopy, PeersThatReadNothingLeaveSlotsToOthers) {
  std::vector<std::unique_ptr<Sender>> unread;
  for (uint32_t i = 0; i < StagingPool::kSlots; ++i) {
    unread.push_back(make_unread(i));
    ASSERT_FALSE(HasFatalFailure());
    if (i % 2 == 0) unread.back()->comm.reset();
  }
  EXPECT_EQ(staging_->free_count(), StagingPool::kSlots - StagingPool::kMostLent) << "the others' bytes were copied";
  send_through_all_slots(1000);
  for (auto& sender : unread) sender->expect_arrived();
}

// Peers that read slowly, more slots wanted than there are, and comms that end in the middle.
TEST_F(SoftZeroCopy, ManySlowPeersGetTheirBytes) {
  constexpr size_t kSenders = 24;
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Sender>> senders;
  for (size_t i = 0; i < kSenders; ++i) {
    senders.push_back(make(4 * kMiB, 4 * kMiB, i, i % 2 == 0 ? 400 * 1024 : 0, 1 + i % 3));
    for (int message = 0; message < 4; ++message) senders.back()->post(random() % (2 * kMiB), random() % (2 * kMiB));
  }
  EXPECT_TRUE(wait_until([&] {
    bool all = true;
    for (auto& sender : senders) all = (random() % 8 == 0 && sender->read()) && all;
    return all || std::all_of(senders.begin(), senders.end(), [](auto& sender) { return sender->read(); });
  }));
  for (auto& sender : senders) {
    sender->expect_done();
    sender->comm.reset();
    sender->expect_arrived();
  }
}

/// Lets lines of level debug through.
struct DebugLog {
  DebugLog() { set_log_level(LogLevel::kDebug); }
  ~DebugLog() { set_log_level(LogLevel::kWarning); }
};

TEST_F(SoftZeroCopy, IsGivenUpWhereTheKernelCopiesAnyway) {
  const DebugLog debug;
  auto sender = make(kMiB, kMiB, 1, 0, 1);
  for (uint32_t i = 0; i < 4 * ZeroCopySends::kInVain; ++i) {
    sender->post(0, kMiB);
    sender->expect_arrived_and_done();
  }
  EXPECT_TRUE(wait_until([] { return logged("bytes are copied from now on: the kernel copies anyway"); }));
}

/// The effective capability to lock memory without limit, taken from this thread and those it starts.
class NoMemoryLocks {
 public:
  NoMemoryLocks() {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    EXPECT_EQ(::syscall(SYS_capget, &header, before_), 0);
    __user_cap_data_struct without[2] = {before_[0], before_[1]};
    without[0].effective &= ~(1u << CAP_IPC_LOCK);
    EXPECT_EQ(::syscall(SYS_capset, &header, without), 0);
    EXPECT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit_), 0);
    const rlimit none = {0, limit_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &none), 0);
  }
  ~NoMemoryLocks() {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    EXPECT_EQ(::syscall(SYS_capset, &header, before_), 0);
    EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit_), 0);
  }

 private:
  __user_cap_data_struct before_[2];
  rlimit limit_;
};

TEST_F(SoftZeroCopy, IsGivenUpWhereTheKernelRefuses) {
  const DebugLog debug;
  const NoMemoryLocks none;
  io_ = *IoPool::create(1);
  auto sender = make(kMiB, kMiB, 1, 0, 1);
  for (uint32_t i = 0; i < ZeroCopySends::kInVain; ++i) {
    sender->post(0, kMiB);
    sender->expect_arrived_and_done();
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_TRUE(logged("bytes are copied from now on: the kernel refuses zero copy"));
}

}  // namespace
}  // namespace tcpx::testing
