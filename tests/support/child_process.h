// A child process that a test talks to over its standard streams and may kill; it is killed with this.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "measure/child.h"

namespace tcpx::testing {

class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& command);
  void write_line(const std::string& line);
  /// Next line of its output without the end of line; "" at the end of the output or at the deadline.
  std::string read_line(Deadline deadline);
  /// Reads lines until one equals `line`. False at the end of the output or at the deadline.
  bool wait_for_line(const std::string& line, Deadline deadline);
  void send_signal(int signal_number);
  /// Sends SIGSTOP and returns when no thread of it runs any more.
  void stop();
  /// True once it has ended; `wait` still tells how.
  bool has_ended() const;
  /// Waits for its end. @return its exit code, else 128 plus the number of the signal that ended it
  int wait() { return process_.wait(); }

 private:
  Child process_;
  UniqueFd input_;
  UniqueFd output_;
  std::string pending_;
};

}  // namespace tcpx::testing
