#include "programs/transfer/transfer_program.h"

#include <algorithm>
#include <new>
#include <thread>

#include "programs/transfer/transfer_steps.h"
#include "transfer/bootstrap.h"

namespace tcpx::programs {
namespace {

/// @param prepared an end that could not even begin still tells its peer so
Status run_end(TransferEnd& end, const Status& prepared, Status (*run)(TransferEnd&, BootstrapChannel&),
               Result<BootstrapChannel> channel) {
  if (!channel.is_ok()) return prepared.is_ok() ? channel.status() : prepared;
  Status mine = prepared;
  try {
    if (mine.is_ok()) mine = run(end, *channel);
  } catch (const std::bad_alloc&) {  // the data has copies in host memory, for which a large --bytes may leave no room
    mine = Status(Code::kSystem, "allocate memory", "no room for a copy of the data in host memory");
  }
  // Each end tells the other how it went and leaves only after it has heard the same from it.
  return channel->finish(mine, end.deadline());
}

Status serve(TransferEnd& end, BootstrapServer& server) {
  const Status prepared = end.prepare(true);
  // No client may ever come; in a loopback run one does.
  if (!prepared.is_ok() && end.options().role == TransferRole::kServer) return prepared;
  end.step("waiting for a client on port ", server.port());
  return run_end(end, prepared, run_server, server.accept(end.deadline()));
}

Status connect(TransferEnd& end, const std::string& host, uint16_t port, const std::atomic<bool>& stop) {
  const Status prepared = end.prepare(false);
  end.step("connecting to ", host, " port ", port);
  return run_end(end, prepared, run_client, bootstrap_connect(host, port, end.deadline(), &stop));
}

/// @param gpus 0 where host memory stands in
Status run_roles(LocalMachine& endpoint, int gpus, const TransferProgramOptions& options, const std::atomic<bool>& stop) {
  const bool loopback = options.role == TransferRole::kLoopback;
  const int gpu = options.gpu.value_or(0);
  const int client_gpu = loopback && gpus > 1 ? (gpu + 1) % gpus : gpu;
  TransferEnd server_end("server", endpoint, options, gpu, stop);
  TransferEnd client_end("client", endpoint, options, client_gpu, stop);

  if (options.role == TransferRole::kClient) return connect(client_end, options.host, options.port, stop);

  TCPX_ASSIGN_OR_RETURN(auto server,
                        BootstrapServer::create({.port = options.port, .host = loopback ? "127.0.0.1" : "", .stop = &stop}));
  if (!loopback) return serve(server_end, *server);

  Status server_status;
  std::thread server_thread([&] { server_status = serve(server_end, *server); });
  const Status client_status = connect(client_end, "127.0.0.1", server->port(), stop);
  server_thread.join();
  return server_status.is_ok() ? client_status : server_status;
}

}  // namespace

int run_transfer_program(const TransferProgramOptions& options, const std::atomic<bool>& stop) {
  auto endpoint = LocalMachine::create();
  if (!endpoint.is_ok()) return failed(endpoint.status());
  const int gpus = endpoint->memory->has_gpu() ? endpoint->memory->device_count() : 0;
  // GPU 0 is the default, so naming it changes nothing: without any GPU host memory stands in, which each end says.
  if (options.gpu.value_or(0) >= std::max(gpus, 1)) {
    return skipped(concat("--gpu ", options.gpu.value_or(0), " asked for, this machine has ", gpus));
  }
  const Status status = run_roles(*endpoint, gpus, options, stop);
  return status.is_ok() ? passed("every byte is where it belongs") : failed(status);
}

}  // namespace tcpx::programs
