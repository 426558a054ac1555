#include "endpoint/connection_book.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "endpoint/metadata.h"
#include "endpoint/same_host.h"
#include "endpoint/whereabouts.h"
#include "secure/settings.h"

namespace tcpx {
namespace {

// Pause between attempts to connect to an endpoint that has no room: the first, doubled each time up to the longest.
constexpr Duration kRetryPause = std::chrono::milliseconds(50), kLongestRetryPause = std::chrono::milliseconds(400);
// Short, because the loopback of another host is reached through a tunnel or not at all.
constexpr Duration kForeignLoopback = std::chrono::seconds(2);

// Once in a process, whose endpoints have the same environment.
void tell_that_anybody_may_connect(const std::string& hosts) {
  static std::once_flag told;
  std::call_once(told, [&] {
    log(LogLevel::kWarning, "connections are not authenticated: anybody who reaches ", hosts, " can use endpoints. Set ",
        name_of_variables(Credential::kNone), ", or ", environment_info(Variable::kSecurity).name, "=off to have it so");
  });
}

}  // namespace

Status ConnectionBook::listen() {
  TCPX_ASSIGN_OR_RETURN(
      server_, BootstrapServer::create({.port = parts_.config.port,
                                        .host = parts_.config.listen_address,
                                        .only_at = parts_.config.listen_address.empty() ? parts_.endpoint.only_at : std::nullopt,
                                        .wait_for_first_frame = true,
                                        .tls = parts_.endpoint.tls.get(),
                                        .stop = &parts_.stop}));
  TCPX_ASSIGN_OR_RETURN(const auto told,
                        whereabouts(parts_.config, server_->address(), parts_.endpoint.addresses, parts_.endpoint.unused_nic));
  hosts_ = told.hosts;
  if (!told.line.empty()) log(told.level, "endpoint at port ", server_->port(), ": ", told.line);
  if (parts_.endpoint.only_at) {
    const std::string open = open_hosts(parts_.config, server_->address(), *parts_.endpoint.only_at);
    if (!open.empty()) tell_that_anybody_may_connect(open);
  }
  entrance_ = std::make_unique<Entrance>(
      Entrance::Parts{.server = *server_,
                      .set_up =
                          [this](BootstrapChannel channel, Deadline deadline, const std::atomic<bool>& gives_way) {
                            // Not restored: this thread is the entrance's own, and may also close what it has made.
                            MemoryOps& memory = *parts_.endpoint.memory;
                            if (memory.has_gpu()) (void)memory.set_current_device(parts_.config.gpu_idx);
                            return set_up_link(std::move(channel), false, link_setup(parts_.identity, &gives_way), deadline);
                          },
                      .admit = [this](LinkParts link) { return add(std::move(link), {}, true)->id; }});
  return Status::ok();
}

void ConnectionBook::stop_waiting() {
  if (entrance_ != nullptr) entrance_->stop_waiting();
}

void ConnectionBook::stop() {
  if (entrance_ != nullptr) entrance_->stop();
}

Result<std::shared_ptr<Connection>> ConnectionBook::find(ConnId conn) const {
  const std::shared_lock lock(mutex_);
  const auto found = connections_.find(conn);
  if (found != connections_.end()) return found->second;
  return Status(Code::kNotFound, "find connection", concat("no connection ", static_cast<uint64_t>(conn)));
}

LinkSetup ConnectionBook::link_setup(const EndpointIdentity& identity, const std::atomic<bool>* gives_way) {
  const EndpointParts& endpoint = parts_.endpoint;
  return {.plugin = *endpoint.plugin,
          .devices = endpoint.devices,
          .receiver = {.unpacker = endpoint.unpacker.get(), .memory = endpoint.memory.get(), .lane = endpoint.lane.get()},
          .settings = endpoint.settings,
          .max_transfers = kMaxLaneTransfers,
          .budget = &parts_.budget,
          .peers = &parts_.peers,
          .identity = identity,
          .same_host = parts_.config.same_host,
          .reads_peer = endpoint.reads_peers,
          .checksums = endpoint.checksums,
          .accepts = &parts_.config.accepts,
          .tls = endpoint.tls.get(),
          .protection = endpoint.protection,
          .local_dir = endpoint.local_dir,
          .gives_way = gives_way};
}

std::string ConnectionBook::path_of_gpus(const LinkParts& link) const {
  MemoryOps& memory = *parts_.endpoint.memory;
  if (link.host == nullptr || !memory.has_gpu() || link.peer.gpu_bus.empty()) return "";
  // CUDA opens no handle of a process that it does not see (201, cudaErrorDeviceUninitialized, with driver 580).
  return concat("; GPU memory ", describe_way(memory.link_to(parts_.config.gpu_idx, link.peer.gpu_bus)),
                link.host->pid == 0 ? ", that of cudaMalloc in one pid namespace only" : "");
}

// @param again the connection whose link this replaces
std::shared_ptr<Connection> ConnectionBook::add(LinkParts link, std::optional<ConnId> again, bool unclaimed) {
  auto connection = std::make_shared<Connection>();
  const std::string peer = link.proved.empty() ? link.peer_name : concat(link.peer_name, " (", link.proved, ")");
  const int peer_gpu = link.peer.gpu_idx;
  const std::string path = concat(parts_.endpoint.path, "; inline up to ", link.inline_bytes, " bytes",
                                  link.local.empty() ? "" : "; ", link.local, path_of_gpus(link));
  {
    const ProgressEngine::Lock lock(parts_.engine);
    ServedLinks& links = parts_.engine.links();
    connection->id = again.value_or(links.new_id());
    parts_.links.memory.forget(connection->id);
    auto made = std::make_unique<Link>(parts_.links, connection->id, std::move(link), path);
    connection->face = made->face();
    connection->link = links.add(std::move(made), unclaimed);
    const std::unique_lock table(mutex_);
    connections_[connection->id] = connection;
  }
  parts_.engine.wake();
  log(LogLevel::kInfo, "connection ", static_cast<uint64_t>(connection->id), again ? " made anew" : "", " to ", peer, ", GPU ",
      peer_gpu, ": ", path);
  return connection;
}

Result<std::shared_ptr<Connection>> ConnectionBook::dial(const EndpointMetadata& to, Deadline deadline,
                                                         std::optional<ConnId> again) {
  const PeerHosts peer = hosts_to_try(to, network_of_thread());
  if (!peer.foreign_loopback) return dial_at(peer.hosts, to, deadline, again);
  auto made = dial_at(peer.hosts, to, deadline.earlier(Deadline::after(kForeignLoopback)), again);
  if (made.is_ok() || made.status().code() == Code::kCancelled) return made;
  return explain_foreign_loopback(made.status(), peer.hosts);
}

// Tries again while the other end says that it has no room for one more client. A shortage of this end's is returned at once.
Result<std::shared_ptr<Connection>> ConnectionBook::dial_at(const std::string& hosts, const EndpointMetadata& to,
                                                            Deadline deadline, std::optional<ConnId> again) {
  EndpointIdentity identity = parts_.identity;
  identity.wanted_gpu_idx = to.gpu_idx;
  identity.wanted_instance = to.instance;
  const CurrentGpu gpu(*parts_.endpoint.memory, parts_.config.gpu_idx);
  Status refused;
  for (Duration pause = kRetryPause;; pause = std::min(2 * pause, kLongestRetryPause)) {
    auto link = connect_link(hosts, to.port, link_setup(identity, nullptr), deadline, &parts_.stop);
    if (parts_.stop) return Status(Code::kCancelled, "connect", "the endpoint is closing");
    if (link.is_ok()) return add(std::move(*link), again);
    const Status& why = link.status();
    // Why earlier attempts were refused says more than that the deadline cut this one short.
    if (!refused.is_ok() && deadline.expired()) return refused;
    if (why.code() != Code::kExhausted || is_shortage(why) || deadline.expired()) return why;
    refused = why;
    std::this_thread::sleep_until(Deadline::after(pause).earlier(deadline).at());
  }
}

Result<ConnId> ConnectionBook::connect(const std::string& ip, int gpu_idx, int port, Deadline deadline) {
  if (port < 1 || port > 65535) return Status(Code::kInvalidArgument, "connect", concat("port ", port));
  if (gpu_idx < 0) return Status(Code::kInvalidArgument, "connect", concat("GPU ", gpu_idx));
  TCPX_ASSIGN_OR_RETURN(const auto connection,
                        dial({.host = ip, .port = static_cast<uint16_t>(port), .gpu_idx = gpu_idx}, deadline, std::nullopt));
  return connection->id;
}

Result<Endpoint::Accepted> ConnectionBook::accept(Deadline deadline) {
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const auto conn, entrance_->accept(deadline));
    if (auto accepted = claim(conn)) return *std::move(accepted);
  }
}

// Hands a connection that was let in to a caller. @return nullopt: it has ended, and left nothing to receive
std::optional<Endpoint::Accepted> ConnectionBook::claim(ConnId conn) {
  const ProgressEngine::Lock lock(parts_.engine);
  const Link* const link = parts_.engine.links().claim(conn);
  if (link == nullptr) return std::nullopt;
  return Endpoint::Accepted{
      .conn = conn, .ip = link->peer_host(), .remote_gpu_idx = link->peer().gpu_idx, .name = link->proved()};
}

bool ConnectionBook::is_alive(ConnId conn) {
  const ProgressEngine::Lock lock(parts_.engine);
  return parts_.engine.links().is_alive(conn);
}

bool ConnectionBook::revive(const std::shared_ptr<Connection>& connection) {
  const ProgressEngine::Lock lock(parts_.engine);
  if (!parts_.engine.links().revive(connection->id)) return false;
  const std::unique_lock table(mutex_);
  connections_[connection->id] = connection;
  return true;
}

void ConnectionBook::drop(ConnId conn) {
  const ProgressEngine::Lock lock(parts_.engine);
  parts_.engine.links().close(conn);
}

Status ConnectionBook::remove(ConnId conn) {
  TCPX_RETURN_IF_ERROR(find(conn).status());
  const std::optional<Status> removed = remotes_.remove(conn);
  if (!removed) retire(conn, false);
  parts_.engine.wake();
  return removed.value_or(Status::ok());
}

bool ConnectionBook::forget(ConnId conn) {
  {
    const std::unique_lock table(mutex_);
    if (connections_.erase(conn) == 0) return false;
  }
  parts_.links.memory.forget(conn);
  return true;
}

void ConnectionBook::retire(ConnId conn, bool keep) {
  const ProgressEngine::Lock lock(parts_.engine);
  if (!forget(conn)) return;  // another thread was faster
  parts_.engine.drain();
  parts_.engine.links().retire(conn, keep);
}

std::vector<uint8_t> ConnectionBook::metadata() const {
  return encode_metadata({.host = hosts_,
                          .port = server_->port(),
                          .gpu_idx = parts_.config.gpu_idx,
                          .instance = parts_.identity.instance,
                          .network = network_of_thread()});
}

}  // namespace tcpx
