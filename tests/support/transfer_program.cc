#include "tests/support/transfer_program.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "tests/support/transfer_steps.h"
#include "transfer/bootstrap.h"

namespace tcpx::testing {
namespace {

// How long a wait may be deaf to Ctrl-C.
constexpr Duration kSlice = std::chrono::milliseconds(200);

// Repeats a bootstrap wait in slices until it has an answer, the step's deadline has passed or the user stops it.
template <class Wait>
Result<BootstrapChannel> in_slices(const TransferEnd& end, Wait wait) {
  const Deadline deadline = end.deadline();
  for (;;) {
    auto channel = wait(deadline.earlier(Deadline::after(kSlice)));
    if (channel.is_ok() || channel.status().code() != Code::kTimeout || deadline.expired()) return channel;
    TCPX_RETURN_IF_ERROR(end.not_stopped());
  }
}

int report(const TransferEnd& end, const Status& status) {
  if (status.is_ok()) {
    end.say("PASSED");
    return kExitPassed;
  }
  end.say("FAILED: ", status.to_string());
  return kExitFailed;
}

/// @param prepared an end that could not even begin still tells its peer so
template <class Run>
int run_end(TransferEnd& end, const Status& prepared, Run run, Result<BootstrapChannel> channel) {
  if (!channel.is_ok()) return report(end, prepared.is_ok() ? channel.status() : prepared);
  const Status mine = prepared.is_ok() ? run(end, *channel) : prepared;
  // Each end tells the other how it went and leaves only after it has heard the same from it.
  return report(end, channel->finish(mine, end.deadline()));
}

int serve(TransferEnd& end, BootstrapServer& server) {
  const Status prepared = end.prepare(true);
  // No client may ever come; in a loopback run one does.
  if (!prepared.is_ok() && end.options().role == TransferRole::kServer) return report(end, prepared);
  end.step("waiting for a client on port ", server.port());
  return run_end(end, prepared, run_server, in_slices(end, [&](Deadline until) { return server.accept(until); }));
}

int connect(TransferEnd& end, const std::string& host, uint16_t port) {
  const Status prepared = end.prepare(false);
  end.step("connecting to ", host, " port ", port);
  return run_end(end, prepared, run_client, in_slices(end, [&](Deadline until) { return bootstrap_connect(host, port, until); }));
}

}  // namespace

int run_transfer_program(const TransferProgramOptions& options, const std::atomic<bool>& stop) {
  auto endpoint = DefaultEndpoint::create();
  if (!endpoint.is_ok()) {
    std::fprintf(stderr, "FAILED: %s\n", endpoint.status().to_string().c_str());
    return kExitFailed;
  }
  const int gpus = endpoint->memory->has_gpu() ? endpoint->memory->device_count() : 0;
  if (options.gpu && *options.gpu >= gpus) {
    std::printf("SKIPPED: --gpu %d asked for, this machine has %d\n", *options.gpu, gpus);
    return kExitSkipped;
  }
  const int gpu = options.gpu.value_or(0);
  const int next_gpu = gpus > 1 ? (gpu + 1) % gpus : gpu;
  TransferEnd server_end("server", *endpoint, options, gpu, stop);
  TransferEnd client_end("client", *endpoint, options, options.role == TransferRole::kLoopback ? next_gpu : gpu, stop);

  if (options.role == TransferRole::kClient) return connect(client_end, options.host, options.port);

  const bool loopback = options.role == TransferRole::kLoopback;
  auto server = BootstrapServer::create({.port = options.port, .host = loopback ? "127.0.0.1" : ""});
  if (!server.is_ok()) return report(server_end, server.status());
  if (!loopback) return serve(server_end, **server);

  int server_code = kExitFailed;
  std::thread server_thread([&] { server_code = serve(server_end, **server); });
  const int client_code = connect(client_end, "127.0.0.1", (*server)->port());
  server_thread.join();
  return std::max(server_code, client_code);
}

}  // namespace tcpx::testing
