// Memory that a process may use, as the files of its control groups say. The files are made up.
#include "base/usable_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_directory.h"

namespace tcpx::testing {
namespace {

class UsableMemory : public ::testing::Test {
 protected:
  uint64_t count() { return count_usable_memory(root_.path()); }

  TemporaryDirectory root_;
  const uint64_t all_ = count_usable_memory(root_.path() + "/empty");  // no file says anything: the machine's
};

TEST_F(UsableMemory, TheMachines) {
  EXPECT_GE(all_, uint64_t{64} << 20);
  EXPECT_LT(all_, uint64_t{1} << 50);
}

TEST_F(UsableMemory, TheLeastOfAllGroupsAbove) {
  root_.write("proc/self/cgroup", "0::/pod/container\n");
  root_.write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  EXPECT_EQ(count(), all_);
  root_.write("sys/fs/cgroup/pod/memory.max", "2097152\n");
  EXPECT_EQ(count(), 2097152u);
  root_.write("sys/fs/cgroup/pod/container/memory.max", "1048576\n");
  EXPECT_EQ(count(), 1048576u);
}

TEST_F(UsableMemory, GroupsOfVersion1) {
  root_.write("proc/self/cgroup", "12:memory:/docker/x\n5:cpu,cpuacct:/docker/y\n");
  root_.write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(count(), all_) << "more than there is: no limit";
  root_.write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1048576\n");
  EXPECT_EQ(count(), 1048576u);
}

TEST_F(UsableMemory, WhatCannotBeReadLimitsNothing) {
  root_.write("proc/self/cgroup", "0::/\n");
  for (const char* limit : {"", "max", "-1", "x"}) {
    root_.write("sys/fs/cgroup/memory.max", limit);
    EXPECT_EQ(count(), all_) << limit;
  }
}

}  // namespace
}  // namespace tcpx::testing
