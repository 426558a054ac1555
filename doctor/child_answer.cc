#include "doctor/child_answer.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "base/unique_fd.h"
#include "base/words.h"
#include "measure/child.h"

namespace tcpx::doctor {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostBytes = size_t{4} << 20;
// Says that `work` has returned: a plugin that calls exit(0) has not.
constexpr char kDoneMark = '\0';
// Not PATH: a program for root must be the system's.
constexpr std::array<const char*, 6> kDirectories = {"/usr/sbin/", "/sbin/",           "/usr/bin/",
                                                     "/bin/",      "/usr/local/sbin/", "/usr/local/bin/"};
// A process inside a driver call that never returns does not die of SIGKILL either; it is left behind then.
constexpr milliseconds kPatienceWithTheDead{500};

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

/// Of the child, which gets the descriptor that it writes its answer to.
using Work = std::function<void(int out)>;

[[noreturn]] void run_child(const Work& work, int pipe_end, pid_t parent) {
  // Its own group, so that all it starts can be ended; no longer in the terminal's, so it must die with us by other means.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(SIGPIPE, SIG_IGN);
  const int out = ::fcntl(pipe_end, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);  // away from the three that are replaced
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
  work(out);
  ::_exit(0);
}

/// Everything that comes through the pipe until it closes or the deadline passes.
std::string read_all(int fd, Deadline deadline) {
  std::string said;
  char buffer[16384];
  while (said.size() < kMostBytes && !deadline.expired()) {
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, deadline.poll_ms()) <= 0) continue;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    said.append(buffer, static_cast<size_t>(n));
  }
  said.resize(std::min(said.size(), kMostBytes));
  return said;
}

ChildAnswer answer_of(const Work& work, Duration limit) {
  ChildAnswer answer;
  int ends[2];
  const auto not_started = [] { return ChildAnswer{.end = ChildAnswer::End::kNotStarted, .number = errno, .said = {}}; };
  if (::pipe2(ends, O_CLOEXEC) != 0) return not_started();
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return not_started();
  if (child == 0) run_child(work, theirs.get(), self);
  theirs.reset();
  const Deadline deadline = Deadline::after(limit);
  answer.said = read_all(ours.get(), deadline);
  ours.reset();  // ends a child that says more
  std::optional<siginfo_t> end = end_of(child, deadline);
  const bool in_time = end.has_value();
  ::kill(-child, SIGKILL);
  if (!in_time) {
    answer.end = ChildAnswer::End::kTimedOut;
    ::kill(child, SIGKILL);  // it may not have got to making its group
    end = end_of(child, Deadline::after(kPatienceWithTheDead));
    if (!end) return answer;
  }
  ::waitpid(child, nullptr, 0);
  if (!in_time) return answer;
  answer.number = end->si_status;
  answer.end = end->si_code == CLD_EXITED ? ChildAnswer::End::kExited : ChildAnswer::End::kKilled;
  return answer;
}

}  // namespace

std::string ChildAnswer::how_it_ended() const {
  if (end == End::kExited) return concat("called exit(", number, ")");
  if (end == End::kKilled) return concat("was killed by signal ", number, " (", ::strsignal(number), ")");
  if (end == End::kTimedOut) return "did not return in time";
  return end == End::kDone ? "" : concat("could not be asked in a process of its own: ", std::strerror(number));
}

void LibraryAnswer::note_bad_end(const ChildAnswer& child) {
  if (child.end == ChildAnswer::End::kDone) return;
  end = child.end == ChildAnswer::End::kTimedOut ? End::kHung : End::kDied;
  detail = child.how_it_ended();
}

std::vector<std::pair<std::string, std::string>> ChildAnswer::lines() const {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const std::string& line : split(said, "\n")) {
    const size_t word = std::min(line.find(' '), line.size());
    lines.emplace_back(line.substr(0, word), line.substr(std::min(word + 1, line.size())));
  }
  return lines;
}

ChildAnswer ask_child(const std::function<void(const Say& say)>& work, Duration limit) {
  ChildAnswer answer = answer_of(
      [&](int out) {
        work([out](std::string_view text) { write_all(out, text); });
        write_all(out, std::string_view(&kDoneMark, 1));
      },
      limit);
  if (answer.end == ChildAnswer::End::kExited && answer.said.ends_with(kDoneMark)) {
    answer.said.pop_back();
    answer.end = ChildAnswer::End::kDone;
  }
  return answer;
}

void* open_library(const std::string& path, const Say& say) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const why = library == nullptr ? ::dlerror() : nullptr;
  if (library == nullptr) say(concat("refused ", one_line(why != nullptr ? why : "?"), "\n"));
  return library;
}

ChildAnswer run_command(const std::string& program, const std::vector<std::string>& arguments, Duration limit) {
  std::vector<std::string> words;
  for (const char* directory : kDirectories) {
    if (words.empty() && ::access(concat(directory, program).c_str(), X_OK) == 0) words.push_back(concat(directory, program));
  }
  if (words.empty()) return {};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return answer_of(
      [&](int out) {
        for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(out, fd);
        ::signal(SIGPIPE, SIG_DFL);
        ::setenv("LC_ALL", "C", 1);
        ::execv(pointers.front(), pointers.data());
      },
      limit);
}

std::string one_line(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return out;
}

}  // namespace tcpx::doctor
