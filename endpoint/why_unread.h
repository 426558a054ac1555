// Why this end cannot read the memory of a process of its host, as people are told, and what to do about it. The kernel gives the same
// errno for several reasons, so other facts that were looked up at the same time tell them apart.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace tcpx {

/// What was asked of the kernel, and what it said.
struct ReadAttempt {
  pid_t pid = 0;        ///< of the other process, in this pid namespace; 0: not visible from here
  int pidfd_error = 0;  ///< errno of pidfd_open for it; 0: none
  int read_error = 0;   ///< errno of process_vm_readv there; 0: none
  bool found = false;   ///< it has read what the other process says lies there

  // Looked up after an EPERM.
  int own_error = 0;                  ///< errno of process_vm_readv in this process
  bool other_user_namespace = false;  ///< it is known that theirs is another one
  bool dumpable = true;               ///< else the other process does not let itself be read
  std::optional<int> ptrace_scope{};  ///< of Yama, where the kernel has it
};

/// @return "": it can be read
std::string why_unread(const ReadAttempt& attempt);

/// Looks up the facts that tell one EPERM from another. @param attempt `pid` and `read_error` known
/// @param user the other process's @param their_user_namespace as `user_namespace` says it there; "": unknown
void look_up_rights(ReadAttempt& attempt, uid_t user, const std::string& their_user_namespace);

/// A number that differs between user namespaces of a host. "": the kernel does not tell
std::string user_namespace();
/// Both are known, and are not one.
inline bool are_apart(const std::string& user_namespace, const std::string& other) {
  return !user_namespace.empty() && !other.empty() && user_namespace != other;
}

}  // namespace tcpx
