// The life of an end: take a command, do it, answer, until the parent closes its socket.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <cstring>

#include "measure/end_process.h"

namespace tcpx {
namespace {

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
