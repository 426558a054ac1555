#include "endpoint/why_unread.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/read_process.h"
#include "base/text.h"

namespace tcpx {
namespace {

std::string why_no_pidfd(int error) {
  const std::string asked = concat("pidfd_open of the other process fails (", std::strerror(error), ")");
  if (error == ENOSYS) return concat(asked, ": it takes Linux 5.3, and a seccomp profile that allows it");
  if (error == EPERM || error == EACCES) return concat(asked, ": let the container's seccomp profile allow it");
  return asked;
}

std::string why_no_rights(const ReadAttempt& attempt) {
  if (attempt.other_user_namespace) return "the user namespaces differ: run both in one";
  if (!attempt.dumpable) return "that process does not let itself be read (PR_SET_DUMPABLE, or it has changed its user)";
  const int scope = attempt.ptrace_scope.value_or(0);
  if (scope >= 3) return concat("kernel.yama.ptrace_scope is ", scope, ", which nobody can change before the host starts again");
  if (scope >= 1) return concat("kernel.yama.ptrace_scope is ", scope, ": set it to 0");
  return "that process has rights that this one has not, or a security module forbids it";
}

}  // namespace

std::string why_unread(const ReadAttempt& attempt) {
  if (attempt.pid == 0) return "the other process is not visible: run both in one pid namespace";
  if (attempt.pidfd_error != 0) return why_no_pidfd(attempt.pidfd_error);
  if (attempt.read_error == 0) return attempt.found ? "" : "the other process is not where it says it is";
  const std::string asked =
      concat("the other's memory cannot be read (process_vm_readv: ", std::strerror(attempt.read_error), ")");
  if (attempt.read_error == ENOSYS)
    return concat(asked, ": it takes CONFIG_CROSS_MEMORY_ATTACH, and a seccomp profile that allows it");
  if (attempt.read_error != EPERM) return asked;
  if (attempt.own_error != 0) return concat(asked, ", nor this process's own: let the container's seccomp profile allow it");
  return concat(asked, ": ", why_no_rights(attempt));
}

void look_up_rights(ReadAttempt& attempt, uid_t user, const std::string& their_user_namespace) {
  char here = 0, there = 0;
  iovec to{&here, 1}, from{&there, 1};
  attempt.own_error = read_process(::getpid(), {&to, 1}, {&from, 1}) == 1 ? 0 : errno;
  attempt.other_user_namespace = are_apart(user_namespace(), their_user_namespace);
  // /proc/PID belongs to root if the process does not let itself be read.
  struct stat facts {};
  attempt.dumpable = ::stat(concat("/proc/", attempt.pid).c_str(), &facts) != 0 || facts.st_uid == user;
  int scope = 0;
  if (std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope) attempt.ptrace_scope = scope;
}

std::string user_namespace() {
  struct stat facts {};
  return ::stat("/proc/self/ns/user", &facts) == 0 ? std::to_string(facts.st_ino) : "";
}

}  // namespace tcpx
