// The reason that is told when a process of this host cannot be read: each fact comes to a sentence of its own.
#include "endpoint/why_unread.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace tcpx::testing {
namespace {

struct Case {
  ReadAttempt attempt;
  const char* said;
};

const std::string kRefused = "the other's memory cannot be read (process_vm_readv: Operation not permitted)";

TEST(WhyUnread, EachReasonIsTold) {
  const Case cases[] = {
      {{.pid = 5, .found = true}, ""},
      {{.pid = 0}, "the other process is not visible: run both in one pid namespace"},
      {{.pid = 5, .pidfd_error = ENOSYS},
       "pidfd_open of the other process fails (Function not implemented): it takes Linux 5.3, and a seccomp profile that allows it"},
      {{.pid = 5, .pidfd_error = EPERM},
       "pidfd_open of the other process fails (Operation not permitted): let the container's seccomp profile allow it"},
      {{.pid = 5, .pidfd_error = EMFILE}, "pidfd_open of the other process fails (Too many open files)"},
      {{.pid = 5, .pidfd_error = ESRCH}, "pidfd_open of the other process fails (No such process)"},
      {{.pid = 5, .found = false}, "the other process is not where it says it is"},
      {{.pid = 5, .read_error = EFAULT}, "the other's memory cannot be read (process_vm_readv: Bad address)"},
      {{.pid = 5, .read_error = ESRCH}, "the other's memory cannot be read (process_vm_readv: No such process)"},
      {{.pid = 5, .read_error = ENOSYS},
       "the other's memory cannot be read (process_vm_readv: Function not implemented): it takes CONFIG_CROSS_MEMORY_ATTACH, and a "
       "seccomp profile that allows it"}};
  for (const auto& [attempt, said] : cases) EXPECT_EQ(why_unread(attempt), said);
}

// The kernel says EPERM for all of them.
TEST(WhyUnread, ARefusalIsToldByItsReason) {
  const Case cases[] = {
      {{.own_error = EPERM, .other_user_namespace = true, .dumpable = false, .ptrace_scope = 1},
       ", nor this process's own: let the container's seccomp profile allow it"},
      {{.other_user_namespace = true, .dumpable = false, .ptrace_scope = 1},
       ": the user namespaces differ: run both in one"},
      {{.dumpable = false, .ptrace_scope = 1},
       ": that process does not let itself be read (PR_SET_DUMPABLE, or it has changed its user)"},
      {{.ptrace_scope = 1}, ": kernel.yama.ptrace_scope is 1: set it to 0"},
      {{.ptrace_scope = 2}, ": kernel.yama.ptrace_scope is 2: set it to 0"},
      {{.ptrace_scope = 3}, ": kernel.yama.ptrace_scope is 3, which nobody can change before the host starts again"},
      {{.ptrace_scope = 0},
       ": that process has rights that this one has not, or a security module forbids it"},
      {{}, ": that process has rights that this one has not, or a security module forbids it"}};
  for (auto [attempt, said] : cases) {
    attempt.pid = 5;
    attempt.read_error = EPERM;
    EXPECT_EQ(why_unread(attempt), kRefused + said);
  }
}

TEST(WhyUnread, FactsAboutThisProcess) {
  ReadAttempt attempt{.pid = ::getpid(), .read_error = EPERM};
  look_up_rights(attempt, ::geteuid(), user_namespace());
  EXPECT_EQ(attempt.own_error, 0);
  EXPECT_FALSE(attempt.other_user_namespace);
  EXPECT_TRUE(attempt.dumpable);
  look_up_rights(attempt, ::geteuid(), user_namespace() + "0");
  EXPECT_TRUE(attempt.other_user_namespace);
  look_up_rights(attempt, ::geteuid(), "");
  EXPECT_FALSE(attempt.other_user_namespace) << "unknown";
  look_up_rights(attempt, ::geteuid() + 1, "");
  EXPECT_FALSE(attempt.dumpable) << "its files belong to somebody else";
}

}  // namespace
}  // namespace tcpx::testing
