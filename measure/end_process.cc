#include "measure/end_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr Duration kMostGrace = std::chrono::seconds(5);  // for an end to notice its own deadline and say so
constexpr int kPollMs = 100;                              // longest delay until a Ctrl-C is seen

template <size_t kBytes>
void put_text(char (&to)[kBytes], const std::string& text) {
  const size_t length = text.copy(to, kBytes - 1);
  to[length] = '\0';
}

Status set_up(const EndSetup& setup, std::unique_ptr<BenchEnd>& end, EndAnswer& answer) {
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<BenchEnd> made, make_bench_end(setup));
  end = std::move(made);
  const Result<Handle> handle = end->listen();
  if (handle.is_ok()) answer.handle = *handle;
  return handle.status();
}

Status run(BenchEnd& end, Deadline deadline, EndAnswer& answer) {
  const Result<Timing> timing = end.run(deadline);
  if (timing.is_ok()) answer.timing = *timing;
  return timing.status();
}

Status perform(const EndCommand& command, std::unique_ptr<BenchEnd>& end, EndAnswer& answer) {
  using Call = EndCommand::Call;
  const Deadline deadline{TimePoint(Duration(command.deadline_ns))};
  switch (command.call) {
    case Call::kSetUp:
      return set_up(command.setup, end, answer);
    case Call::kConnect:
      return end->connect(command.handle, deadline);
    case Call::kAccept:
      return end->accept(deadline);
    case Call::kAllocate:
      return end->allocate(command.row);
    case Call::kPrepare:
      return end->prepare(command.count);
    case Call::kRun:
      return run(*end, deadline, answer);
    case Call::kVerify:
      return end->verify();
    case Call::kClose:
      return end->close();
  }
  return Status(Code::kInternal, "perform command", "unknown call");
}

}  // namespace

Result<std::unique_ptr<EndPair>> EndPair::start(const EnvironmentOverrides& overrides, const std::atomic<bool>& stop,
                                                const std::vector<std::string>& words) {
  std::unique_ptr<EndPair> pair(new EndPair(stop));
  TCPX_RETURN_IF_ERROR(spawn(pair->leader_, words, overrides));
  TCPX_RETURN_IF_ERROR(spawn(pair->follower_, words, overrides));
  return pair;
}

Status EndPair::spawn(End& end, std::vector<std::string> words, const EnvironmentOverrides& overrides) {
  words.emplace_back();
  TCPX_ASSIGN_OR_RETURN(Child started, Child::start_connected(std::move(words), overrides, SOCK_SEQPACKET, end.socket));
  end.process = std::move(started);
  return Status::ok();
}

// Its socket is closed: it ends, if it has not yet.
Status EndPair::died(End& end) {
  return Status(Code::kPeerGone, end.name, describe_exit(end.process.wait()));
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
  const Deadline patience(deadline.at() + std::min(limit, kMostGrace));
  Status first_error;
  bool leader_waits = true, follower_waits = true;
  while (leader_waits || follower_waits) {
    if (stop_) return Status(Code::kCancelled, "measure", "interrupted");
    if (patience.expired()) {
      const char* silent = leader_waits ? leader_.name : follower_.name;
      return Status(Code::kTimeout, leader_waits && follower_waits ? "both ends" : silent, "no answer");
    }
    pollfd waits[2] = {{.fd = leader_waits ? leader_.socket.get() : -1, .events = POLLIN, .revents = 0},
                       {.fd = follower_waits ? follower_.socket.get() : -1, .events = POLLIN, .revents = 0}};
    if (::poll(waits, 2, kPollMs) < 0 && errno != EINTR) return system_error("wait for ends", errno);
    const auto take = [&](const pollfd& wait, End& end, EndAnswer& answer, bool& waiting) {
      if (wait.revents == 0) return;
      waiting = false;
      Status status = receive(end, answer);
      // An end that has died explains what the other one says.
      if (!status.is_ok() && (first_error.is_ok() || !end.process.is_running())) first_error = std::move(status);
    };
    take(waits[0], leader_, answers.leader, leader_waits);
    take(waits[1], follower_, answers.follower, follower_waits);
    if (!leader_.process.is_running() || !follower_.process.is_running()) break;
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
    put_text(answer.detail, status.detail());
    if (::send(socket, &answer, sizeof answer, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof answer)) return 1;
  }
  return 0;
}

}  // namespace tcpx
