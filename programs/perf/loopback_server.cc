#include "programs/perf/loopback_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <optional>

#include "base/socket_address.h"
#include "base/text.h"

namespace tcpx::perf {
namespace {

BootstrapChannel channel_over(UniqueFd socket, const std::atomic<bool>& stop) {
  return BootstrapChannel(std::move(socket), SocketAddress::loopback(0), TCPX_VERSION, &stop);
}

}  // namespace

Result<LoopbackServer> LoopbackServer::start(std::vector<std::string> arguments, const std::string& option) {
  arguments.insert(arguments.begin(), "/proc/self/exe");
  arguments.push_back(option + '=');
  UniqueFd ours;
  TCPX_ASSIGN_OR_RETURN(auto child, Child::start_connected(std::move(arguments), {}, SOCK_STREAM | SOCK_NONBLOCK, ours));
  return LoopbackServer(std::move(child), std::move(ours));
}

BootstrapChannel LoopbackServer::channel(const std::atomic<bool>& stop) {
  return channel_over(std::move(socket_), stop);
}

Status LoopbackServer::wait(Deadline deadline) {
  const std::optional<int> code = child_.wait_until(deadline);
  if (!code) return {Code::kTimeout, "wait for the server process", "it does not end"};
  // 0 and 1 are its verdict, which the channel has told already.
  if (*code <= 1) return Status::ok();
  return {Code::kPeerGone, "wait for the server process", concat("it ", describe_exit(*code))};
}

Result<BootstrapChannel> loopback_channel(int descriptor, const std::atomic<bool>& stop) {
  // Should the client have died before this, the channel has no peer, which ends this process too.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int type = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) {
    return Status(Code::kInvalidArgument, "begin as the server of a loopback run",
                  concat("descriptor ", descriptor, " is no stream"));
  }
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return channel_over(UniqueFd(descriptor), stop);
}

}  // namespace tcpx::perf
