// A child process that a test talks to over its standard streams and may kill.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace tcpx::testing {

class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& command);
  /// Kills it when it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

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
  /// Waits for its end. @return wait status as waitpid(2) tells it.
  int wait();

 private:
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
  std::string pending_;
};

}  // namespace tcpx::testing
