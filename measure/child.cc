#include "measure/child.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string_view>
#include <thread>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr int kSignalBase = 128;

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

}  // namespace

Result<Child> Child::start(std::vector<std::string> words, const EnvironmentOverrides& overrides,
                           const std::vector<std::pair<int, int>>& descriptors) {
  std::vector<std::string> variables = environment_with(overrides);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const auto& [ours, theirs] : descriptors) ::posix_spawn_file_actions_adddup2(&actions, ours, theirs);
  Child child;
  const int error = ::posix_spawnp(&child.pid_, words.at(0).c_str(), &actions, nullptr, pointers_to(words).data(),
                                   pointers_to(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return child;
  child.pid_ = -1;
  return system_error(concat("start ", words[0]), error);
}

Result<Child> Child::start_connected(std::vector<std::string> words, const EnvironmentOverrides& overrides, int type,
                                     UniqueFd& ours) {
  int sockets[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets) != 0) return system_error("make a socket pair", errno);
  ours = UniqueFd(sockets[0]);
  const UniqueFd theirs(sockets[1]);
  words.back() += std::to_string(kSocket);
  return start(std::move(words), overrides, {{theirs.get(), kSocket}});
}

std::optional<siginfo_t> end_of(pid_t child, Deadline deadline) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child) return info;
    if (deadline.expired()) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Child::~Child() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

int Child::wait() {
  const pid_t pid = std::exchange(pid_, -1);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

std::optional<int> Child::wait_until(Deadline deadline) {
  return end_of(pid_, deadline) ? std::optional(wait()) : std::nullopt;
}

std::string describe_exit(int code) {
  if (code <= kSignalBase) return concat("ended with exit code ", code);
  return concat("was ended by signal ", code - kSignalBase, " (", ::strsignal(code - kSignalBase), ")");
}

}  // namespace tcpx
