#include "measure/end_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include <iterator>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr Duration kMostGrace = std::chrono::seconds(2);  // for an end to notice its own deadline and say so
constexpr int kPollMs = 100;                              // longest delay until a Ctrl-C is seen

template <size_t kBytes>
void put_text(char (&to)[kBytes], const std::string& text) {
  to[text.copy(to, kBytes - 1)] = '\0';
}

Status perform(const EndCommand& command, std::unique_ptr<BenchEnd>& end, EndAnswer& answer) {
  using Call = EndCommand::Call;
  const Deadline deadline{TimePoint(Duration(command.deadline_ns))};
  switch (command.call) {
    case Call::kSetUp: {
      TCPX_ASSIGN_OR_RETURN(end, make_bench_end(command.setup));
      TCPX_ASSIGN_OR_RETURN(answer.handle, end->listen());
      return Status::ok();
    }
    case Call::kConnect:
      return end->connect(command.handle, deadline);
    case Call::kAccept:
      return end->accept(deadline);
    case Call::kAllocate:
      return end->allocate(command.row);
    case Call::kPrepare:
      return end->prepare(command.count);
    case Call::kRun: {
      TCPX_ASSIGN_OR_RETURN(answer.timing, end->run(deadline));
      put_text(answer.detail, end->path());
      return Status::ok();
    }
    case Call::kVerify:
      return end->verify();
    case Call::kClose:
      return end->close();
  }
  return Status(Code::kInternal, "perform command", "unknown call");
}

}  // namespace

Result<std::unique_ptr<EndPair>> EndPair::start(const EnvironmentOverrides& overrides, const std::atomic<bool>& stop, Deadline by,
                                                const std::vector<std::string>& words) {
  std::unique_ptr<EndPair> pair(new EndPair(stop, by));
  for (End& end : pair->ends_) {
    std::vector<std::string> all = words;
    all.emplace_back();
    TCPX_ASSIGN_OR_RETURN(end.process, Child::start_connected(std::move(all), overrides, SOCK_SEQPACKET, end.socket));
  }
  return pair;
}

// Its socket is closed: it ends, if it has not yet.
Status EndPair::died(End& end) {
  return Status(Code::kPeerGone, end.name, describe_exit(end.process.wait()));
}

double EndPair::cpu_seconds() const {
  double seconds = 0;
  for (const End& end : ends_) {
    clockid_t clock{};
    timespec now{};
    if (::clock_getcpuclockid(end.process.pid(), &clock) == 0 && ::clock_gettime(clock, &now) == 0)
      seconds += static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  }
  return seconds;
}

Result<EndPair::Answers> EndPair::ask(const EndCommand& leader, const EndCommand& follower, Duration limit) {
  const Deadline deadline = Deadline::after(limit).earlier(by_);
  const Deadline patience(deadline.at() + std::min(limit, kMostGrace));
  Answers answers;
  EndAnswer* const places[] = {&answers.follower, &answers.leader};
  bool waits[] = {true, true};
  for (size_t i = 0; i < std::size(ends_); ++i) {
    EndCommand command = i == 0 ? follower : leader;
    command.deadline_ns = deadline.at().time_since_epoch().count();
    if (::send(ends_[i].socket.get(), &command, sizeof command, MSG_NOSIGNAL) < 0) return died(ends_[i]);
  }
  Status first_error;
  while (waits[0] || waits[1]) {
    if (stop_) return Status(Code::kCancelled, "measure", "interrupted");
    if (patience.expired()) {
      return Status(Code::kTimeout, waits[0] && waits[1] ? "both ends" : ends_[waits[0] ? 0 : 1].name, "no answer");
    }
    pollfd sockets[2];
    for (size_t i = 0; i < 2; ++i) sockets[i] = {.fd = waits[i] ? ends_[i].socket.get() : -1, .events = POLLIN, .revents = 0};
    if (::poll(sockets, 2, kPollMs) < 0 && errno != EINTR) return system_error("wait for ends", errno);
    for (size_t i = 0; i < 2; ++i) {
      if (sockets[i].revents == 0) continue;
      waits[i] = false;
      EndAnswer& answer = *places[i];
      // An end that has died explains what the other one says.
      if (::recv(sockets[i].fd, &answer, sizeof answer, 0) != static_cast<ssize_t>(sizeof answer)) return died(ends_[i]);
      if (answer.code == Code::kOk || !first_error.is_ok()) continue;
      first_error = Status(answer.code, concat(ends_[i].name, ": ", answer.operation), answer.detail);
    }
  }
  if (!first_error.is_ok()) return first_error;
  return answers;
}

int run_end(int socket) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // an end that is busy does not look at its socket
  std::unique_ptr<BenchEnd> end;
  EndCommand command;
  while (::recv(socket, &command, sizeof command, 0) == static_cast<ssize_t>(sizeof command)) {
    EndAnswer answer;
    const Status status = perform(command, end, answer);
    answer.code = status.code();
    put_text(answer.operation, status.operation());
    if (!status.is_ok()) put_text(answer.detail, status.detail());
    if (::send(socket, &answer, sizeof answer, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof answer)) return 1;
  }
  return 0;
}

}  // namespace tcpx
