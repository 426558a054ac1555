#include "tests/support/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/socket_io.h"

namespace tcpx::testing {

ChildProcess::ChildProcess(const std::vector<std::string>& command) {
  int to_child[2], from_child[2];
  EXPECT_EQ(::pipe2(to_child, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(from_child, O_CLOEXEC), 0);
  const UniqueFd childs_input(to_child[0]), childs_output(from_child[1]);
  input_ = UniqueFd(to_child[1]);
  output_ = UniqueFd(from_child[0]);
  auto started = Child::start(command, {}, {{childs_input.get(), STDIN_FILENO}, {childs_output.get(), STDOUT_FILENO}});
  EXPECT_TRUE(started.is_ok()) << started.status().to_string();
  if (started.is_ok()) process_ = std::move(*started);
}

void ChildProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  EXPECT_EQ(::write(input_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string ChildProcess::read_line(Deadline deadline) {
  for (;;) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    char buffer[4096];
    if (!wait_for(output_.get(), POLLIN, deadline).is_ok()) return "";
    const ssize_t n = ::read(output_.get(), buffer, sizeof buffer);
    if (n <= 0) return "";
    pending_.append(buffer, static_cast<size_t>(n));
  }
}

bool ChildProcess::wait_for_line(const std::string& line, Deadline deadline) {
  for (;;) {
    const std::string next = read_line(deadline);
    if (next == line) return true;
    if (next.empty()) return false;
  }
}

void ChildProcess::send_signal(int signal_number) {
  ::kill(process_.pid(), signal_number);
}

void ChildProcess::stop() {
  send_signal(SIGSTOP);
  siginfo_t info{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(process_.pid()), &info, WSTOPPED), 0);
}

bool ChildProcess::has_ended() const {
  siginfo_t info{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(process_.pid()), &info, WEXITED | WNOHANG | WNOWAIT), 0);
  return info.si_pid == process_.pid();
}

}  // namespace tcpx::testing
