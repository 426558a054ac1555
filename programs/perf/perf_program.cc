#include "programs/perf/perf.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/socket_address.h"
#include "base/text.h"
#include "measure/child.h"
#include "programs/perf/perf_end.h"
#include "programs/perf/perf_output.h"
#include "programs/program.h"
#include "programs/roles.h"
#include "transfer/bootstrap.h"

namespace tcpx::perf {
namespace {

using programs::ProgramEnd;

// Time the server process of a loopback run may take to end, once both ends have exchanged their results, and when they could
// not: then it hangs, most likely, and is killed.
constexpr Duration kServerEnds = std::chrono::seconds(10);
constexpr Duration kSilentServerEnds = std::chrono::seconds(2);

/// Both ends of a loopback run talk over a pair of connected sockets in place of a port.
BootstrapChannel channel_over(UniqueFd socket, const std::atomic<bool>& stop) {
  return BootstrapChannel(std::move(socket), SocketAddress::loopback(0), TCPX_VERSION, &stop);
}

/// In the server process. @return kInvalidArgument when the descriptor is no socket.
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

/// Everything of one end.
class Program {
 public:
  Program(const PerfOptions& options, LocalMachine& machine, int gpus, const std::atomic<bool>& stop)
      : options_(options), machine_(machine), stop_(stop), output_(options, is_child()) {
    const int gpu = options_.gpu.value_or(0);
    const bool second = options_.role == PerfRole::kLoopback && !is_child() && gpus > 1;
    gpu_ = second ? (gpu + 1) % gpus : gpu;
  }

  Status run() {
    TCPX_RETURN_IF_ERROR(output_.load());
    const Status moved = run_role();
    const Status written = output_.finish(concat("ncclNetPlugin_v", machine_.plugin->abi_version()), devices());
    for (const Status& status : {moved, written}) TCPX_RETURN_IF_ERROR(status);
    return output_.verdict();
  }
  std::string promise() const { return output_.promise(); }

 private:
  bool is_child() const { return options_.loopback_descriptor.has_value(); }
  Deadline deadline() const { return Deadline::after(options_.timeout); }

  std::vector<std::string> devices() const {
    const auto properties = machine_.plugin->properties(0);
    std::vector<std::string> names = {concat(machine_.plugin->name(), " over ", properties.is_ok() ? properties->name : "")};
    names.push_back(machine_.memory->has_gpu() ? concat("GPU ", gpu_, " of ", machine_.memory->device_count()) : "no GPU");
    return names;
  }

  Status run_role() {
    if (is_child()) return run_end([&](ProgramEnd&) { return loopback_channel(*options_.loopback_descriptor, stop_); }, true);
    switch (options_.role) {
      case PerfRole::kServer:
        return serve();
      case PerfRole::kClient:
        return run_end([&](ProgramEnd&) { return bootstrap_connect(options_.host, options_.port, deadline(), &stop_); }, false);
      case PerfRole::kLoopback:
        return run_loopback();
    }
    return {Code::kInternal, "run", "no such role"};
  }

  Status serve() {
    TCPX_ASSIGN_OR_RETURN(auto server, BootstrapServer::create({.port = options_.port, .host = "", .stop = &stop_}));
    const auto meet = [&](ProgramEnd& end) {
      end.say(concat("waiting for a client on port ", server->port()));
      return server->accept(deadline());
    };
    return run_end(meet, true);
  }

  /// The server is this program once more, so that each end has its plugin's threads and its GPU to itself.
  Status run_loopback() {
    std::vector<std::string> words = options_.arguments;
    words.insert(words.begin(), "/proc/self/exe");
    words.push_back(concat(kLoopbackOption, "="));
    UniqueFd socket;
    TCPX_ASSIGN_OR_RETURN(Child server, Child::start_connected(std::move(words), {}, SOCK_STREAM | SOCK_NONBLOCK, socket));
    const Status status =
        run_end([&](ProgramEnd&) { return Result<BootstrapChannel>(channel_over(std::move(socket), stop_)); }, false);
    const std::optional<int> code = server.wait_until(Deadline::after(status.is_ok() ? kServerEnds : kSilentServerEnds));
    // The exit of the process says more than the end of the channel. 0 and 1 are its verdict, which the channel has told already.
    if ((code && *code <= 1) || !(status.is_ok() || status.code() == Code::kPeerGone)) return status;
    constexpr char kWait[] = "wait for the server process";
    return code ? Status(Code::kPeerGone, kWait, concat("it ", describe_exit(*code)))
                : Status(Code::kTimeout, kWait, "it does not end");
  }

  /// @param meet waits for the other end
  Status run_end(const programs::Meet& meet, bool is_server) {
    auto end = std::make_unique<PerfEnd>(EndPlace{options_, is_server, gpu_, machine_, stop_}, output_);
    // To a server no client may ever come. Everybody else has a peer who waits to be told.
    return programs::run_end(std::move(end), options_.role != PerfRole::kServer, options_.timeout, meet);
  }

  PerfOptions options_;  // a server's become those of its client
  LocalMachine& machine_;
  const std::atomic<bool>& stop_;
  PerfOutput output_;
  int gpu_ = 0;
};

/// A server process that cannot begin still tells its client so.
Status tell_client(const PerfOptions& options, const Status& why, const std::atomic<bool>& stop) {
  if (!options.loopback_descriptor) return why;
  TCPX_ASSIGN_OR_RETURN(auto channel, loopback_channel(*options.loopback_descriptor, stop));
  return channel.finish(why, Deadline::after(options.timeout));
}

}  // namespace

int run_perf(const PerfOptions& options, const std::atomic<bool>& stop) {
  // The server process of a loopback run leaves the last word to its client.
  const bool is_child = options.loopback_descriptor.has_value();
  const auto last_word = [is_child](const Status& status, const std::string& promise) -> int {
    if (is_child) return status.is_ok() ? programs::kExitPassed : programs::kExitFailed;
    return status.is_ok() ? programs::passed(promise) : programs::failed(status);
  };
  auto machine = LocalMachine::create();
  if (!machine.is_ok()) return last_word(tell_client(options, machine.status(), stop), "");
  const int gpus = machine->memory->has_gpu() ? machine->memory->device_count() : 0;
  // GPU 0 is the default, so naming it changes nothing: without any GPU host memory stands in, which each end says.
  const int gpu = options.gpu.value_or(0);
  if (gpu >= std::max(gpus, 1)) {
    return is_child ? programs::kExitPassed : programs::skipped(concat("GPU ", gpu, " asked for, this machine has ", gpus));
  }
  Program program(options, *machine, gpus, stop);
  const Status status = program.run();
  return last_word(status, program.promise());
}

}  // namespace tcpx::perf
