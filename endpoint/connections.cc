// The part of an Endpoint that makes, keeps and ends connections.
#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/own_thread.h"
#include "base/socket_address.h"
#include "base/text.h"
#include "endpoint/endpoint_impl.h"

namespace tcpx {
namespace {

// What one connection that comes may take to be set up, so that a client that stalls holds up the next ones no longer.
constexpr Duration kSetUpTime = std::chrono::seconds(10);
// Connections that are set up at once in the background.
constexpr size_t kMaxSetUps = 16;
constexpr Duration kLookForClients = std::chrono::milliseconds(100);

// Errors that a stranger, or a client that went away, can cause: no reason to stop waiting for another one.
bool concerns_one_client(const Status& status) {
  return status.code() == Code::kPeerGone || status.code() == Code::kProtocol || status.code() == Code::kTimeout;
}

}  // namespace

Result<std::shared_ptr<Endpoint::Impl::Front>> Endpoint::Impl::find(ConnId conn) const {
  const std::shared_lock lock(fronts_mutex_);
  const auto found = fronts_.find(conn);
  if (found != fronts_.end()) return found->second;
  return Status(Code::kNotFound, "find connection", concat("no connection ", static_cast<uint64_t>(conn)));
}

Result<LinkParts> Endpoint::Impl::set_up(BootstrapChannel channel, bool connector, int wanted_gpu_idx, uint64_t wanted_instance,
                                         Deadline deadline) {
  const CurrentGpu gpu(*this);
  EndpointIdentity identity = identity_;
  identity.wanted_gpu_idx = wanted_gpu_idx;
  identity.wanted_instance = wanted_instance;
  identity.inline_bytes = inline_bytes_;
  const LinkSetup setup{.plugin = *parts_.plugin,
                        .devices = parts_.devices,
                        .receiver = {.unpacker = parts_.unpacker.get(), .memory = parts_.memory.get(), .lane = parts_.lane.get()},
                        .settings = parts_.settings,
                        .max_transfers = kMaxLaneTransfers,
                        .budget = &budget_,
                        .identity = identity};
  return set_up_link(std::move(channel), connector, setup, deadline);
}

// @param again the connection whose link this replaces
// @param unasked nobody is told of it
std::shared_ptr<Endpoint::Impl::Front> Endpoint::Impl::add_link(LinkParts parts, std::optional<ConnId> again, bool unasked) {
  auto front = std::make_shared<Front>();
  const std::string peer = parts.peer_name;
  const int peer_gpu = parts.peer.gpu_idx;
  std::string path = concat(parts_.path, "; inline up to ", inline_bytes_, " bytes");
  {
    const Aside aside(*this);
    front->id = again.value_or(ConnId{last_conn_ + 1});
    last_conn_ = std::max(last_conn_, static_cast<uint64_t>(front->id));
    front->link = ++last_link_;
    links_.erase(front->id);
    registry_.forget(front->id);
    Served& served = links_[front->id];
    served.link = std::make_unique<Link>(*shared_, front->id, std::move(parts), path);
    served.number = front->link;
    front->face = served.link->face();
    served.unasked = unasked;
    watch(served, true);
    idle_ = false;
    const std::unique_lock lock(fronts_mutex_);
    fronts_[front->id] = front;
  }
  wake();
  log(LogLevel::kNotice, "connection ", static_cast<uint64_t>(front->id), again ? " made anew" : "", " to ", peer, ", GPU ",
      peer_gpu, ": ", path);
  return front;
}

bool Endpoint::Impl::is_alive(ConnId conn) {
  const Aside aside(*this);
  const auto found = links_.find(conn);
  return found != links_.end() && !found->second.removed && found->second.link->status().is_ok();
}

// @param to instance 0: whichever endpoint listens there
Result<std::shared_ptr<Endpoint::Impl::Front>> Endpoint::Impl::dial(const EndpointMetadata& to, Deadline deadline,
                                                                    std::optional<ConnId> again) {
  auto channel = bootstrap_connect(to.host, to.port, deadline, &stop_);
  if (!channel.is_ok()) return channel.status();
  auto parts = set_up(std::move(*channel), true, to.gpu_idx, to.instance, deadline);
  if (!parts.is_ok()) return parts.status();
  return add_link(std::move(*parts), again);
}

Result<ConnId> Endpoint::Impl::connect(const std::string& ip, int gpu_idx, int port, Deadline deadline) {
  if (port < 1 || port > 65535) return Status(Code::kInvalidArgument, "connect", concat("port ", port));
  if (gpu_idx < 0) return Status(Code::kInvalidArgument, "connect", concat("GPU ", gpu_idx));
  const auto front = dial({.host = ip, .port = static_cast<uint16_t>(port), .gpu_idx = gpu_idx}, deadline);
  if (!front.is_ok()) return front.status();
  return (*front)->id;
}

Result<Endpoint::Accepted> Endpoint::Impl::accept(Deadline deadline) {
  const MutexLock lock(accept_mutex_);
  if (passive_)
    return Status(Code::kInvalidArgument, "accept", "connections are taken in the background since start_passive_accept");
  for (;;) {
    auto channel = server_->accept(deadline);
    if (!channel.is_ok()) return channel.status();
    // Whoever has come is let in, however short the caller's deadline: a loop over short waits would refuse a client each time.
    auto parts = set_up(std::move(*channel), false, -1, 0, Deadline::after(kSetUpTime));
    if (parts.is_ok()) {
      Accepted accepted{.conn = {}, .ip = parts->peer_host, .remote_gpu_idx = parts->peer.gpu_idx};
      accepted.conn = add_link(std::move(*parts))->id;
      return accepted;
    }
    if (!concerns_one_client(parts.status()) || stop_) return parts.status();
    log(LogLevel::kWarning, "a connection was not made: ", parts.status().to_string());
    // One client that hangs may take longer than the caller would wait, not one after the other.
    if (deadline.expired()) return Status(Code::kTimeout, "accept", concat("the last client: ", parts.status().to_string()));
  }
}

Status Endpoint::Impl::start_accepting() {
  const MutexLock lock(accept_mutex_);
  if (passive_.exchange(true)) return Status::ok();
  auto thread = start_thread("tcpx-accept", [this] { accept_in_background(); });
  if (!thread.is_ok()) {
    passive_ = false;
    return thread.status();
  }
  acceptor_ = std::move(*thread);
  return Status::ok();
}

void Endpoint::Impl::accept_in_background() {
  struct SetUp {
    std::thread thread;
    std::atomic<bool> done{false};
  };
  std::list<SetUp> running;
  const auto reap = [&running](bool all) {
    for (auto setup = running.begin(); setup != running.end();) {
      if (!all && !setup->done) {
        ++setup;
        continue;
      }
      setup->thread.join();
      setup = running.erase(setup);
    }
  };
  while (!stop_) {
    reap(false);
    if (running.size() >= kMaxSetUps) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    auto channel = server_->accept(Deadline::after(kLookForClients));
    if (!channel.is_ok()) {
      if (channel.status().code() == Code::kTimeout) continue;
      log(LogLevel::kWarning, "cannot take connections: ", channel.status().to_string());
      std::this_thread::sleep_for(kLookForClients);
      continue;
    }
    SetUp& setup = running.emplace_back();
    auto shared = std::make_shared<BootstrapChannel>(std::move(*channel));  // a std::function wants to copy what it holds
    auto thread = start_thread("tcpx-set-up", [this, &setup, shared] {
      auto parts = set_up(std::move(*shared), false, -1, 0, Deadline::after(kSetUpTime));
      if (parts.is_ok()) {
        (void)add_link(std::move(*parts), {}, true);
      } else if (!stop_) {
        log(LogLevel::kWarning, "a connection was not made: ", parts.status().to_string());
      }
      setup.done = true;
    });
    if (thread.is_ok()) {
      setup.thread = std::move(*thread);
    } else {
      running.pop_back();
    }
  }
  reap(true);
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
  const MutexLock lock(remote->mutex);
  const bool known = remote->front != nullptr;
  const std::optional<ConnId> before = known ? std::optional(remote->front->id) : std::nullopt;
  const bool same = known && (metadata.instance == 0 || metadata.instance == remote->instance) &&
                    (remote->users > 0 ? is_alive(remote->front->id) : revive(remote->front));
  if (!same) {
    std::optional<ConnId> again;
    if (known && remote->users > 0) again = remote->front->id;
    auto front = dial(metadata, deadline, again);
    if (!front.is_ok()) return front.status();
    if (known && !again) drop_link(remote->front->id);
    remote->front = std::move(*front);
    remote->instance = metadata.instance;
  }
  ++remote->users;
  const MutexLock table(remotes_mutex_);
  if (before && *before != remote->front->id) remote_of_.erase(*before);
  remote_of_[remote->front->id] = remote;
  return remote->front->id;
}

// An idle connection is used again. @return false: it has ended
bool Endpoint::Impl::revive(const std::shared_ptr<Front>& front) {
  const Aside aside(*this);
  const auto found = links_.find(front->id);
  if (found == links_.end() || found->second.removed || !found->second.link->status().is_ok()) return false;
  found->second.idle_since.reset();
  const std::unique_lock lock(fronts_mutex_);
  fronts_[front->id] = front;
  return true;
}

void Endpoint::Impl::drop_link(ConnId conn) {
  const Aside aside(*this);
  const auto found = links_.find(conn);
  if (found == links_.end()) return;
  found->second.removed = true;
  found->second.link->close();
}

Status Endpoint::Impl::remove(ConnId conn) {
  const auto front = find(conn);
  if (!front.is_ok()) return front.status();
  std::shared_ptr<Remote> remote;
  {
    const MutexLock lock(remotes_mutex_);
    const auto found = remote_of_.find(conn);
    if (found != remote_of_.end()) remote = found->second;
  }
  if (remote != nullptr) {
    const MutexLock lock(remote->mutex);
    if (remote->users == 0 || remote->front == nullptr || remote->front->id != conn)
      return Status(Code::kNotFound, "remove connection", concat("no connection ", static_cast<uint64_t>(conn)));
    if (--remote->users > 0) return Status::ok();
    retire(conn, true);
  } else {
    retire(conn, false);
  }
  wake();
  return Status::ok();
}

// From now on nobody knows the id. @return false: nobody did
bool Endpoint::Impl::forget_connection(ConnId conn) {
  {
    const std::unique_lock lock(fronts_mutex_);
    if (fronts_.erase(conn) == 0) return false;
  }
  registry_.forget(conn);
  return true;
}

// Nobody uses the connection any more. @param keep for a while, in case somebody asks for it again
void Endpoint::Impl::retire(ConnId conn, bool keep) {
  const Aside aside(*this);
  if (!forget_connection(conn)) return;  // somebody else was faster
  while (take_submissions()) {
  }
  const auto found = links_.find(conn);
  if (found == links_.end()) return;
  Served& served = found->second;
  if (keep && config_.max_idle_connections > 0 && served.link->status().is_ok()) {
    served.link->cancel_all(Status(Code::kCancelled, "remove connection", "removed by the application"));
    served.idle_since = Clock::steady().now();
    served.stirred = true;
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
