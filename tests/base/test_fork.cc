// What a forked child has of the descriptors of its parent.
#include "base/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace tcpx::testing {
namespace {

/// A forked child finds the same file behind `fd` as this process.
bool child_has(int fd) {
  struct stat here {};
  EXPECT_EQ(::fstat(fd, &here), 0);
  const pid_t child = ::fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    struct stat there {};
    ::_exit(::fstat(fd, &there) == 0 && there.st_dev == here.st_dev && there.st_ino == here.st_ino ? 0 : 1);
  }
  int how = -1;
  EXPECT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFEXITED(how)) << how;
  return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

UniqueFd open_zero() {
  return UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
}

TEST(Fork, AChildLosesADroppedDescriptorAndHasOneThatIsKept) {
  const UniqueFd file = open_zero();
  EXPECT_TRUE(child_has(file.get()));
  drop_in_child(file.get());
  EXPECT_FALSE(child_has(file.get()));
  keep_in_child(file.get());
  EXPECT_TRUE(child_has(file.get()));
}

TEST(Fork, WhatComesToTheNumberOfADroppedDescriptorIsTheChildsToo) {
  UniqueFd file = open_zero();
  const int number = file.get();
  drop_in_child(number);
  file.reset();
  const UniqueFd next = open_zero();
  ASSERT_EQ(next.get(), number);
  EXPECT_TRUE(child_has(number));
}

}  // namespace
}  // namespace tcpx::testing
