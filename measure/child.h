// A child process with an environment of its own.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// Variables that a child sees differently from this process.
using EnvironmentOverrides = std::map<std::string, std::string>;

/// Waits for the end of the child process with that id, which stays to be reaped. nullopt: it still runs at the deadline.
std::optional<siginfo_t> end_of(pid_t child, Deadline deadline);

/// Killed and reaped on destruction when it still runs.
class Child {
 public:
  Child() = default;
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Child();

  /// Starts `words`: the program, looked up in PATH when there is no slash in it, and its arguments.
  /// @param descriptors pairs of a descriptor of this process and its number in the child; of the rest it gets those that are not
  ///        close-on-exec.
  static Result<Child> start(std::vector<std::string> words, const EnvironmentOverrides& overrides,
                             const std::vector<std::pair<int, int>>& descriptors);

  /// The same with one end of a pair of connected sockets as its descriptor kSocket, and that number added to its last word.
  /// @param type SOCK_STREAM, SOCK_SEQPACKET, and flags of this process's end. @param ours gets this process's end
  static Result<Child> start_connected(std::vector<std::string> words, const EnvironmentOverrides& overrides, int type,
                                       UniqueFd& ours);
  static constexpr int kSocket = 3;  // above the standard streams

  /// -1 when there is none, or its end has been waited for.
  pid_t pid() const { return pid_; }
  bool is_running() const { return pid_ >= 0; }
  /// Waits for its end, however long that takes. @return the code it exited with, else 128 plus the number of the signal that
  /// ended it, as shells count.
  int wait();
  /// The same, until the deadline. @return nullopt when it still runs then.
  std::optional<int> wait_until(Deadline deadline);

 private:
  pid_t pid_ = -1;
};

/// "ended with exit code 1", "was ended by signal 9 (Killed)". @param code as Child::wait returns it.
std::string describe_exit(int code);

}  // namespace tcpx
