// Cores that a process may use, as its affinity and the files of its control groups say. The files are made up.
#include "base/usable_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>

#include "tests/support/one_core.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/threads.h"

namespace tcpx::testing {
namespace {

class UsableCores : public ::testing::Test {
 protected:
  uint32_t count() { return count_usable_cores(root_.path()); }

  TemporaryDirectory root_;
  const uint32_t all_ = count_usable_cores(root_.path() + "/empty");  // no file says anything: the affinity's
};

TEST_F(UsableCores, ThoseThatTheProcessMayRunOn) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(all_, static_cast<uint32_t>(CPU_COUNT(&allowed)));
  // The affinity is each thread's own: this one is as one of a process that may use a single core.
  run_together(1, [&](size_t) {
    ASSERT_NO_FATAL_FAILURE(run_on_first_core());
    EXPECT_EQ(count_usable_cores(root_.path()), 1u);
  });
}

TEST_F(UsableCores, NoMoreThanTheQuotaOfTheGroup) {
  root_.write("proc/self/cgroup", "0::/pod/container\n");
  root_.write("sys/fs/cgroup/pod/container/cpu.max", "100000 100000\n");
  EXPECT_EQ(count(), 1u);
  root_.write("sys/fs/cgroup/pod/container/cpu.max", "1000 100000\n");
  EXPECT_EQ(count(), 1u) << "a part of a core is one";
  root_.write("sys/fs/cgroup/pod/container/cpu.max", "100001 100000\n");
  EXPECT_EQ(count(), std::min(all_, 2u)) << "and so is the rest of one";
  root_.write("sys/fs/cgroup/pod/container/cpu.max", "6400000000 100000\n");
  EXPECT_EQ(count(), all_) << "more than there are";
  root_.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(count(), all_);
}

TEST_F(UsableCores, TheGroupsAboveAreAsked) {
  root_.write("proc/self/cgroup", "0::/pod/container\n");
  root_.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  root_.write("sys/fs/cgroup/pod/cpu.max", "50000 50000\n");
  EXPECT_EQ(count(), 1u);
}

// Its path is the host's, which the container does not see.
TEST_F(UsableCores, AContainersOwnGroupIsItsRoot) {
  root_.write("proc/self/cgroup", "0::/kubepods.slice/some\n");
  root_.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(count(), 1u);
}

TEST_F(UsableCores, GroupsOfVersion1) {
  root_.write("proc/self/cgroup", "12:memory:/docker/x\n5:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n");
  root_.write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  root_.write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(count(), all_);
  root_.write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(count(), 1u);
}

// A group of another controller has its own tree, where the same path is another group.
TEST_F(UsableCores, GroupsOfOtherControllersOfVersion1AreNotAsked) {
  root_.write("proc/self/cgroup", "6:cpuset:/docker/x\n5:cpuacct:/docker/x\n4:cpu,cpuacct:/docker/y\n");
  root_.write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "100000\n");
  root_.write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(count(), all_);
}

TEST_F(UsableCores, WhatCannotBeReadLimitsNothing) {
  for (const char* groups : {"", "\n", "0::\n", "nonsense\n", "0:\n", "::::\n", "0::/../..\n"}) {
    root_.write("proc/self/cgroup", groups);
    EXPECT_EQ(count(), all_) << groups;
  }
  root_.write("proc/self/cgroup", "0::/\n");
  for (const char* limit : {"", "max", "100000", "100000 0", "-5 100000", "x y", "100000 x"}) {
    root_.write("sys/fs/cgroup/cpu.max", limit);
    EXPECT_EQ(count(), all_) << limit;
  }
}

}  // namespace
}  // namespace tcpx::testing
