#include "programs/perf/perf_program.h"

#include <algorithm>
#include <new>

#include "base/text.h"
#include "device/gpu_presence.h"
#include "programs/perf/loopback_server.h"
#include "programs/perf/perf_end.h"
#include "programs/perf/perf_output.h"
#include "transfer/bootstrap.h"

namespace tcpx::perf {
namespace {

// Time the server process of a loopback run may take to end, once both ends have exchanged their results, and when they could
// not: then it hangs, most likely, and is killed.
constexpr Duration kServerEnds = std::chrono::seconds(10);
// Time an end that failed gives the other to learn of it. The way to it may be what failed.
constexpr Duration kFarewellAfterFailure = std::chrono::seconds(1);
constexpr Duration kSilentServerEnds = std::chrono::seconds(2);

/// Everything of one end.
class Program {
 public:
  Program(const PerfProgram& program, LocalMachine& endpoint, int gpus, const std::atomic<bool>& stop)
      : program_(program), options_(program.options), endpoint_(endpoint), stop_(stop), output_(options_, is_child()) {
    const int gpu = options_.gpu.value_or(0);
    const bool second = options_.role == PerfRole::kLoopback && !is_child() && gpus > 1;
    gpu_ = second ? (gpu + 1) % gpus : gpu;
  }

  PerfVerdict run() {
    Status status = output_.load();
    if (!status.is_ok()) return {std::move(status), "", ""};
    if (options_.memory == MemoryType::kCuda && !endpoint_.memory->has_gpu()) {
      output_.line("# no GPU on this machine: host memory stands in for GPU memory");
    }
    status = run_role();
    const Status written = output_.finish(concat("ncclNetPlugin_v", endpoint_.plugin->abi_version()), devices());
    for (const Status& later : {written, output_.verdict()}) {
      if (status.is_ok()) status = later;
    }
    return {std::move(status), output_.promise(), ""};
  }

 private:
  bool is_child() const { return program_.loopback_descriptor.has_value(); }
  Deadline deadline() const { return Deadline::after(options_.timeout); }

  std::vector<std::string> devices() const {
    const auto properties = endpoint_.plugin->properties(0);
    std::vector<std::string> names = {concat(endpoint_.plugin->name(), " over ", properties.is_ok() ? properties->name : "")};
    names.push_back(endpoint_.memory->has_gpu() ? concat("GPU ", gpu_, " of ", endpoint_.memory->device_count()) : "no GPU");
    return names;
  }

  Status run_role() {
    if (is_child()) return run_end(loopback_channel(*program_.loopback_descriptor, stop_), true);
    switch (options_.role) {
      case PerfRole::kServer:
        return serve();
      case PerfRole::kClient:
        return run_end(bootstrap_connect(options_.host, options_.port, deadline(), &stop_), false);
      case PerfRole::kLoopback:
        return run_loopback();
    }
    return {Code::kInternal, "run", "no such role"};
  }

  Status serve() {
    TCPX_ASSIGN_OR_RETURN(auto server, BootstrapServer::create({.port = options_.port, .host = "", .stop = &stop_}));
    output_.line(concat("# waiting for a client on port ", server->port()));
    return run_end(server->accept(deadline()), true);
  }

  Status run_loopback() {
    TCPX_ASSIGN_OR_RETURN(auto server, LoopbackServer::start(program_.arguments, kLoopbackOption));
    const Status status = run_end(server.channel(stop_), false);
    const Status ended = server.wait(Deadline::after(status.is_ok() ? kServerEnds : kSilentServerEnds));
    // The exit of the process says more than the end of the channel.
    if (!ended.is_ok() && (status.is_ok() || status.code() == Code::kPeerGone)) return ended;
    return status;
  }

  Status run_end(Result<BootstrapChannel> channel, bool is_server) {
    if (!channel.is_ok()) return channel.status();
    Status mine;
    {
      PerfEnd end({options_, is_server, gpu_, endpoint_, stop_}, output_.listener());
      mine = measure(end, *channel);
      if (!mine.is_ok()) output_.show_unfinished(end);
    }
    // Each end tells the other how it went and leaves only after it has heard the same from it.
    return channel->finish(mine, mine.is_ok() ? deadline() : deadline().earlier(Deadline::after(kFarewellAfterFailure)));
  }

  static Status measure(PerfEnd& end, BootstrapChannel& channel) {
    try {
      TCPX_RETURN_IF_ERROR(end.prepare());
      return end.run(channel);
    } catch (const std::bad_alloc&) {
      return {Code::kSystem, "allocate memory", "no room"};
    }
  }

  const PerfProgram& program_;
  const PerfOptions& options_;
  LocalMachine& endpoint_;
  const std::atomic<bool>& stop_;
  PerfOutput output_;
  int gpu_ = 0;
};

/// A server process that cannot begin still tells its client so.
void tell_client(const PerfProgram& program, const Status& why, const std::atomic<bool>& stop) {
  if (!program.loopback_descriptor) return;
  auto channel = loopback_channel(*program.loopback_descriptor, stop);
  if (channel.is_ok()) (void)channel->finish(why, Deadline::after(program.options.timeout));
}

}  // namespace

PerfVerdict run_perf_program(const PerfProgram& program, const std::atomic<bool>& stop) {
  auto endpoint = LocalMachine::create();
  if (!endpoint.is_ok()) {
    tell_client(program, endpoint.status(), stop);
    return {endpoint.status(), "", ""};
  }
  const int gpus = endpoint->memory->has_gpu() ? endpoint->memory->device_count() : 0;
  // GPU 0 is the default, so naming it changes nothing: without any GPU host memory stands in, which each end says.
  const int gpu = program.options.gpu.value_or(0);
  if (gpu >= std::max(gpus, 1)) {
    return {Status::ok(), "", concat("GPU ", gpu, " asked for, this machine has ", gpus)};
  }
  return Program(program, *endpoint, gpus, stop).run();
}

}  // namespace tcpx::perf
