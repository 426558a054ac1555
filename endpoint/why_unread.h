// Explains to people why this end cannot read the memory of another process on its host, and what to do about it. The kernel gives the
// same errno for several reasons; facts looked up at the same time tell them apart.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace tcpx {

/// Results of an attempt to read the other process.
struct ReadAttempt {
  pid_t pid = 0;        ///< of the other process, in this pid namespace; 0: not visible from here
  int pidfd_error = 0;  ///< errno of pidfd_open for it; 0: none
  int read_error = 0;   ///< errno of process_vm_readv from it; 0: none
  bool found = false;   ///< the bytes read are those that the other process told

  // Looked up after an EPERM.
  int own_error = 0;                  ///< errno of process_vm_readv from this process itself
  bool other_user_namespace = false;  ///< the other process is known to have another user namespace
  bool dumpable = true;               ///< false: the other process does not let itself be read
  std::optional<int> ptrace_scope{};  ///< of Yama, if the kernel has it
};

/// @return the reason; "": it can be read
std::string why_unread(const ReadAttempt& attempt);

/// Looks up the facts that tell one EPERM from another. @param attempt `pid` and `read_error` are known
/// @param user of the other process @param their_user_namespace `user_namespace` of the other process; "": unknown
void look_up_rights(ReadAttempt& attempt, uid_t user, const std::string& their_user_namespace);

/// Identifies the user namespace of this process on its host. "": the kernel does not tell
std::string user_namespace();
/// True if both are known and differ.
inline bool are_apart(const std::string& user_namespace, const std::string& other) {
  return !user_namespace.empty() && !other.empty() && user_namespace != other;
}

}  // namespace tcpx
