#include "bench/end_process.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/socket_io.h"
#include "base/text.h"

extern char** environ;

namespace tcpx::bench {
namespace {

constexpr int kSocketOfEnd = 3;
constexpr Duration kGrace = std::chrono::seconds(5);  // for an end to notice its own deadline and say so
constexpr int kPollMs = 100;                          // how late a Ctrl-C may be seen

std::vector<std::string> environment_with(const EnvironmentOverrides& overrides) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!overrides.contains(std::string(text.substr(0, text.find('='))))) variables.emplace_back(text);
  }
  for (const auto& [name, value] : overrides) variables.push_back(concat(name, '=', value));
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string describe_exit(int status) {
  if (WIFSIGNALED(status)) return concat("was ended by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
  return concat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<EndPair>> EndPair::start(const EnvironmentOverrides& overrides, const std::atomic<bool>& stop) {
  std::unique_ptr<EndPair> pair(new EndPair(stop));
  TCPX_RETURN_IF_ERROR(pair->spawn(pair->leader_, overrides));
  TCPX_RETURN_IF_ERROR(pair->spawn(pair->follower_, overrides));
  return pair;
}

EndPair::~EndPair() {
  for (End* end : {&leader_, &follower_}) {
    if (end->pid < 0) continue;
    ::kill(end->pid, SIGKILL);
    ::waitpid(end->pid, nullptr, 0);
  }
}

Status EndPair::spawn(End& end, const EnvironmentOverrides& overrides) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return system_error("make socket pair", errno);
  end.socket = UniqueFd(sockets[0]);
  const UniqueFd other(sockets[1]);
  std::vector<std::string> words = {"/proc/self/exe", kEndArgument, concat(kSocketOfEnd)};
  std::vector<std::string> variables = environment_with(overrides);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, other.get(), kSocketOfEnd);
  const int error =
      ::posix_spawn(&end.pid, words[0].c_str(), &actions, nullptr, pointers_to(words).data(), pointers_to(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return Status::ok();
  end.pid = -1;
  return system_error(concat("start ", end.name), error);
}

Status EndPair::died(End& end) {
  int status = 0;
  ::waitpid(end.pid, &status, 0);  // its socket is closed: it ends, if it has not yet
  end.pid = -1;
  return Status(Code::kPeerGone, end.name, describe_exit(status));
}

Status EndPair::send(End& end, const EndCommand& command) {
  if (::send(end.socket.get(), &command, sizeof command, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof command))
    return Status::ok();
  return died(end);
}

Status EndPair::receive(End& end, EndAnswer& answer) {
  if (::recv(end.socket.get(), &answer, sizeof answer, 0) != static_cast<ssize_t>(sizeof answer)) return died(end);
  if (answer.code == Code::kOk) return Status::ok();
  return Status(answer.code, concat(end.name, ": ", answer.operation), answer.detail);
}

Result<EndPair::Answers> EndPair::ask(const EndCommand& leader, const EndCommand& follower, Duration limit) {
  const auto deadline = Deadline::after(limit);
  EndCommand command = follower;
  command.deadline_ns = deadline.at().time_since_epoch().count();
  TCPX_RETURN_IF_ERROR(send(follower_, command));
  command = leader;
  command.deadline_ns = deadline.at().time_since_epoch().count();
  TCPX_RETURN_IF_ERROR(send(leader_, command));

  Answers answers;
  const Deadline patience(deadline.at() + kGrace);
  Status first_error;
  bool leader_waits = true, follower_waits = true;
  while (leader_waits || follower_waits) {
    if (stop_) return Status(Code::kSystem, "bench_soft_plugin", "interrupted");
    if (patience.expired()) {
      return Status(Code::kTimeout, leader_waits ? leader_.name : follower_.name, "gives no answer");
    }
    pollfd waits[2] = {{.fd = leader_waits ? leader_.socket.get() : -1, .events = POLLIN, .revents = 0},
                       {.fd = follower_waits ? follower_.socket.get() : -1, .events = POLLIN, .revents = 0}};
    if (::poll(waits, 2, kPollMs) < 0 && errno != EINTR) return system_error("wait for ends", errno);
    const auto take = [&](const pollfd& wait, End& end, EndAnswer& answer, bool& waiting) {
      if (wait.revents == 0) return;
      waiting = false;
      Status status = receive(end, answer);
      // An end that has died explains what the other one says.
      if (!status.is_ok() && (first_error.is_ok() || end.pid < 0)) first_error = std::move(status);
    };
    take(waits[0], leader_, answers.leader, leader_waits);
    take(waits[1], follower_, answers.follower, follower_waits);
    if (leader_.pid < 0 || follower_.pid < 0) break;
  }
  if (!first_error.is_ok()) return first_error;
  return answers;
}

}  // namespace tcpx::bench
