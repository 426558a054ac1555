// The part of an Endpoint that makes, keeps and ends connections.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "endpoint/endpoint_impl.h"

namespace tcpx {
namespace {

// Between two attempts to come in where there was no room.
constexpr Duration kRetryPause = std::chrono::milliseconds(50);

Status closing(const char* operation) {
  return Status(Code::kCancelled, operation, "the endpoint is closing");
}

}  // namespace

Result<std::shared_ptr<Endpoint::Impl::ConnectionState>> Endpoint::Impl::find(ConnId conn) const {
  const std::shared_lock lock(connections_mutex_);
  const auto found = connections_.find(conn);
  if (found != connections_.end()) return found->second;
  return Status(Code::kNotFound, "find connection", concat("no connection ", static_cast<uint64_t>(conn)));
}

Result<LinkParts> Endpoint::Impl::set_up(BootstrapChannel channel, bool connector, const Wish& wish, Deadline deadline,
                                         const std::atomic<bool>* gives_way) {
  const CurrentGpu gpu(*this);
  EndpointIdentity identity = identity_;
  identity.wanted_gpu_idx = wish.gpu_idx;
  identity.wanted_instance = wish.instance;
  identity.inline_bytes = inline_bytes_;
  const LinkSetup setup{.plugin = *parts_.plugin,
                        .devices = parts_.devices,
                        .receiver = {.unpacker = parts_.unpacker.get(), .memory = parts_.memory.get(), .lane = parts_.lane.get()},
                        .settings = parts_.settings,
                        .max_transfers = kMaxLaneTransfers,
                        .budget = &budget_,
                        .identity = identity,
                        .gives_way = gives_way};
  return set_up_link(std::move(channel), connector, setup, deadline);
}

// @param again the connection whose link this replaces
// @param accepted_in_background nobody is told of it
std::shared_ptr<Endpoint::Impl::ConnectionState> Endpoint::Impl::add_link(LinkParts parts, std::optional<ConnId> again,
                                                                          bool accepted_in_background) {
  auto state = std::make_shared<ConnectionState>();
  const std::string peer = parts.peer_name;
  const int peer_gpu = parts.peer.gpu_idx;
  std::string path = concat(parts_.path, "; inline up to ", inline_bytes_, " bytes");
  {
    const ProgressLock lock(*this);
    state->id = again.value_or(ConnId{last_conn_ + 1});
    last_conn_ = std::max(last_conn_, static_cast<uint64_t>(state->id));
    state->link = ++last_link_;
    links_.erase(state->id);
    registry_.forget(state->id);
    auto link = std::make_unique<Link>(*shared_, state->id, std::move(parts), path);
    ServedLink& served = links_[state->id];
    served.link = std::move(link);
    served.number = state->link;
    state->face = served.link->face();
    served.accepted_in_background = accepted_in_background;
    watch(served, true);
    idle_ = false;
    const std::unique_lock table(connections_mutex_);
    connections_[state->id] = state;
  }
  events_.wake();
  log(LogLevel::kNotice, "connection ", static_cast<uint64_t>(state->id), again ? " made anew" : "", " to ", peer, ", GPU ",
      peer_gpu, ": ", path);
  return state;
}

bool Endpoint::Impl::is_alive(ConnId conn) {
  const ProgressLock lock(*this);
  const auto found = links_.find(conn);
  return found != links_.end() && !found->second.removed && found->second.link->status().is_ok();
}

// The other end may have no room for one more client now; it says so.
// @param to instance 0: whichever endpoint listens there
Result<std::shared_ptr<Endpoint::Impl::ConnectionState>> Endpoint::Impl::dial(const EndpointMetadata& to, Deadline deadline,
                                                                              std::optional<ConnId> again) {
  const Wish wish{.gpu_idx = to.gpu_idx, .instance = to.instance};
  for (;;) {
    auto channel = bootstrap_connect(to.host, to.port, deadline, &stop_);
    auto parts = channel.is_ok() ? set_up(std::move(*channel), true, wish, deadline) : Result<LinkParts>(channel.status());
    if (stop_) return closing("connect");
    if (parts.is_ok()) return add_link(std::move(*parts), again);
    if (parts.status().code() != Code::kExhausted || deadline.expired()) return parts.status();
    std::this_thread::sleep_until(Deadline::after(kRetryPause).earlier(deadline).at());
  }
}

Result<ConnId> Endpoint::Impl::connect(const std::string& ip, int gpu_idx, int port, Deadline deadline) {
  if (port < 1 || port > 65535) return Status(Code::kInvalidArgument, "connect", concat("port ", port));
  if (gpu_idx < 0) return Status(Code::kInvalidArgument, "connect", concat("GPU ", gpu_idx));
  TCPX_ASSIGN_OR_RETURN(const auto state, dial({.host = ip, .port = static_cast<uint16_t>(port), .gpu_idx = gpu_idx}, deadline));
  return state->id;
}

Entrance::Parts Endpoint::Impl::entrance_parts() {
  return {.server = *server_,
          .set_up =
              [this](BootstrapChannel channel, Deadline deadline, const std::atomic<bool>& gives_way) {
                // For good: this is a thread of ours, which may also close what it has made.
                if (parts_.memory->has_gpu()) (void)parts_.memory->set_current_device(config_.gpu_idx);
                return set_up(std::move(channel), false, Wish(), deadline, &gives_way);
              },
          .admit = [this](LinkParts parts) { return add_link(std::move(parts), {}, true)->id; }};
}

Result<Endpoint::Accepted> Endpoint::Impl::accept(Deadline deadline) {
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const auto conn, entrance_->accept(deadline));
    if (auto accepted = claim(conn)) return *std::move(accepted);
  }
}

// A connection that was let in gets somebody who knows of it. @return nullopt: it has ended, and left nothing
std::optional<Endpoint::Accepted> Endpoint::Impl::claim(ConnId conn) {
  const ProgressLock lock(*this);
  const auto found = links_.find(conn);
  if (found == links_.end()) return std::nullopt;
  const Link& link = *found->second.link;
  if (!link.status().is_ok() && !link.has_arrivals()) return std::nullopt;
  found->second.accepted_in_background = false;
  return Accepted{.conn = conn, .ip = link.peer_host(), .remote_gpu_idx = link.peer().gpu_idx};
}

Status Endpoint::Impl::start_accepting() {
  return entrance_->admit_from_now_on();
}

Result<ConnId> Endpoint::Impl::add_remote(const EndpointMetadata& metadata, Deadline deadline) {
  const std::string key = concat(metadata.host, ":", metadata.port, "/", metadata.gpu_idx);
  std::shared_ptr<Remote> remote;
  {
    const MutexLock lock(remotes_mutex_);
    auto& entry = remotes_[key];
    if (entry == nullptr) entry = std::make_shared<Remote>();
    remote = entry;
  }
  {
    const MutexLock lock(remote->mutex);
    while (remote->connecting) {
      if (stop_) return closing("add remote endpoint");
      if (deadline.expired()) {
        return Status(Code::kTimeout, "add remote endpoint",
                      concat("another call has been connecting with ", metadata.host, " until the deadline"));
      }
      (void)remote->changed.wait_until(remote->mutex, Deadline::after(kLookAtStop).earlier(deadline).at());
    }
    remote->connecting = true;
    ++remote->users;
  }
  // Ends also on an exception, so that threads waiting for this call go on.
  struct Turn {
    Impl& impl;
    Remote& remote;
    bool succeeded = false;
    ~Turn() {
      std::optional<ConnId> unused;
      {
        const MutexLock lock(remote.mutex);
        remote.connecting = false;
        remote.changed.notify_all();
        if (!succeeded && --remote.users == 0 && remote.state != nullptr) unused = remote.state->id;
      }
      if (unused) impl.retire(*unused, true);  // its last user has removed it meanwhile
    }
  } turn{*this, *remote};
  TCPX_ASSIGN_OR_RETURN(const auto state, connection_to(*remote, metadata, deadline));
  const MutexLock table(remotes_mutex_);
  remote_of_[state->id] = remote;
  turn.succeeded = true;
  return state->id;
}

// The connection there is, or a new one. Only the one caller that is connecting is here.
Result<std::shared_ptr<Endpoint::Impl::ConnectionState>> Endpoint::Impl::connection_to(Remote& remote,
                                                                                       const EndpointMetadata& metadata,
                                                                                       Deadline deadline) {
  std::shared_ptr<ConnectionState> before;
  uint64_t instance = 0;
  bool used = false;
  {
    const MutexLock lock(remote.mutex);
    before = remote.state;
    instance = remote.instance;
    used = remote.users > 1;
  }
  const bool same = before != nullptr && (metadata.instance == 0 || metadata.instance == instance) &&
                    (used ? is_alive(before->id) : revive(before));
  if (same) return before;
  std::optional<ConnId> again;
  if (before != nullptr && used) again = before->id;
  auto state = dial(metadata, deadline, again);
  if (!state.is_ok()) return state.status();
  if (before != nullptr && !again) {
    drop_link(before->id);
    const MutexLock table(remotes_mutex_);
    remote_of_.erase(before->id);
  }
  const MutexLock lock(remote.mutex);
  remote.state = *state;
  remote.instance = metadata.instance;
  return state;
}

// An idle connection is used again. @return false: it has ended
bool Endpoint::Impl::revive(const std::shared_ptr<ConnectionState>& state) {
  const ProgressLock lock(*this);
  const auto found = links_.find(state->id);
  if (found == links_.end() || found->second.removed || !found->second.link->status().is_ok()) return false;
  found->second.idle_since.reset();
  const std::unique_lock table(connections_mutex_);
  connections_[state->id] = state;
  return true;
}

void Endpoint::Impl::drop_link(ConnId conn) {
  const ProgressLock lock(*this);
  const auto found = links_.find(conn);
  if (found == links_.end()) return;
  found->second.removed = true;
  found->second.link->close();
}

Status Endpoint::Impl::remove(ConnId conn) {
  const auto state = find(conn);
  if (!state.is_ok()) return state.status();
  std::shared_ptr<Remote> remote;
  {
    const MutexLock lock(remotes_mutex_);
    const auto found = remote_of_.find(conn);
    if (found != remote_of_.end()) remote = found->second;
  }
  if (remote != nullptr) {
    const MutexLock lock(remote->mutex);
    if (remote->users == 0 || remote->state == nullptr || remote->state->id != conn)
      return Status(Code::kNotFound, "remove connection", concat("no connection ", static_cast<uint64_t>(conn)));
    if (--remote->users > 0) return Status::ok();
    retire(conn, true);
  } else {
    retire(conn, false);
  }
  events_.wake();
  return Status::ok();
}

// From now on nobody knows the id. @return false: nobody did
bool Endpoint::Impl::forget_connection(ConnId conn) {
  {
    const std::unique_lock table(connections_mutex_);
    if (connections_.erase(conn) == 0) return false;
  }
  registry_.forget(conn);
  return true;
}

// Nobody uses the connection any more. @param keep for a while, in case somebody asks for it again
void Endpoint::Impl::retire(ConnId conn, bool keep) {
  const ProgressLock lock(*this);
  if (!forget_connection(conn)) return;  // somebody else was faster
  while (take_submissions()) {
  }
  const auto found = links_.find(conn);
  if (found == links_.end()) return;
  ServedLink& served = found->second;
  if (keep && config_.max_idle_connections > 0 && served.link->status().is_ok()) {
    served.link->cancel_all(Status(Code::kCancelled, "remove connection", "removed by the application"));
    served.idle_since = Clock::steady().now();
    served.has_work = true;
  } else {
    served.removed = true;
    served.link->close();
  }
  next_look_ = {};
}

std::vector<uint8_t> Endpoint::Impl::metadata() const {
  std::string host = config_.public_address;
  if (host.empty() && !config_.listen_address.empty() && server_->address().host() != "::" &&
      server_->address().host() != "0.0.0.0")
    host = server_->address().host();
  if (host.empty()) host = parts_.public_address;
  return encode_metadata({.host = host, .port = server_->port(), .gpu_idx = config_.gpu_idx, .instance = identity_.instance});
}

}  // namespace tcpx
