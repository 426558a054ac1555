#include "programs/doctor/command.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "perf/child.h"

namespace tcpx::doctor {
namespace {

constexpr size_t kMostOutput = size_t{4} << 20;
// Not PATH: a program for root must be the system's.
constexpr std::array<const char*, 6> kDirectories = {"/usr/sbin/", "/sbin/",           "/usr/bin/",
                                                     "/bin/",      "/usr/local/sbin/", "/usr/local/bin/"};

/// Standard output and error until both are closed.
Status collect(int fd, Deadline deadline, std::string& text) {
  char buffer[16384];
  for (;;) {
    TCPX_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline));
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return Status::ok();
    if (n < 0 && errno != EINTR && errno != EAGAIN) return system_error("read from a program", errno);
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMostOutput) return Status(Code::kExhausted, "read from a program", "it says too much");
    if (deadline.expired()) return Status(Code::kTimeout, "read from a program", "it does not end");
  }
}

}  // namespace

CommandAnswer run_command(const std::string& program, const std::vector<std::string>& arguments, Duration limit) {
  const Deadline deadline = Deadline::after(limit);
  CommandAnswer answer;
  std::vector<std::string> words;
  for (const char* directory : kDirectories) {
    if (words.empty() && ::access(concat(directory, program).c_str(), X_OK) == 0) words.push_back(concat(directory, program));
  }
  if (words.empty()) return answer;
  words.insert(words.end(), arguments.begin(), arguments.end());
  int ends[2];
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null || ::pipe2(ends, O_CLOEXEC) != 0) return answer;
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  auto child = bench::Child::start(std::move(words), {{"LC_ALL", "C"}},
                                   {{null.get(), STDIN_FILENO}, {in.get(), STDOUT_FILENO}, {in.get(), STDERR_FILENO}});
  if (!child.is_ok()) return answer;
  in.reset();
  answer.installed = true;
  const Status read = collect(out.get(), deadline, answer.text);
  const std::optional<int> code = read.is_ok() ? child->wait_until(deadline) : std::nullopt;
  answer.timed_out = !code.has_value();
  answer.exit_code = code.value_or(0);
  return answer;
}

}  // namespace tcpx::doctor
