#include "integrations/nixl/peers.h"

#include <new>

#include "base/clock.h"
#include "base/connect_first.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "base/text.h"

namespace tcpx::nixl {
namespace {

// An endpoint listens before its metadata exists, so that one that refuses has ended. Asked here because `add_remote_endpoint`
// waits for listeners that come later. @return kPeerGone; ok also when there is no answer in a second
Status expect_listener(std::span<const uint8_t> metadata) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(1));
  TCPX_ASSIGN_OR_RETURN(const auto address, Endpoint::read_metadata(metadata));
  const auto places = resolve(address.ip, address.port, deadline, nullptr);
  if (!places.is_ok()) return Status::ok();  // whoever connects says why
  const Status answer = connect_first(*places, WhenRefused::kGiveUp, deadline).status();
  return answer.code() == Code::kPeerGone ? answer : Status::ok();
}

}  // namespace

Peers::~Peers() {
  MutexLock lock(mutex_);
  stopped_ = true;
  while (connecting_ > 0) changed_.wait(mutex_);
}

Status Peers::add(const std::string& agent, const std::string& metadata) {
  const std::vector<uint8_t> bytes(metadata.begin(), metadata.end());
  TCPX_RETURN_IF_ERROR(Endpoint::read_metadata(bytes).status());
  MutexLock lock(mutex_);
  std::shared_ptr<Peer>& peer = peers_[agent];
  if (peer != nullptr && peer->metadata == bytes) return Status::ok();
  if (peer != nullptr) {
    peer->forgotten = true;
    if (peer->conn) static_cast<void>(endpoint_.remove_connection(*peer->conn));
  }
  peer = std::make_shared<Peer>();
  peer->metadata = bytes;
  peer->incarnation = ++loads_;
  connect(agent, peer);
  return Status::ok();
}

Status Peers::expect(const std::string& agent) {
  MutexLock lock(mutex_);
  return find(agent).status();
}

uint64_t Peers::incarnation(const std::string& agent) {
  MutexLock lock(mutex_);
  const auto peer = find(agent);
  return peer.is_ok() ? (*peer)->incarnation : 0;
}

Status Peers::remove(const std::string& agent) {
  std::optional<ConnId> conn;
  {
    MutexLock lock(mutex_);
    TCPX_ASSIGN_OR_RETURN(const auto peer, find(agent));
    peer->forgotten = true;
    conn = peer->conn;
    peers_.erase(agent);
  }
  return conn ? endpoint_.remove_connection(*conn) : Status::ok();
}

Result<std::optional<ConnId>> Peers::connection_to(const std::string& agent, TimePoint since) {
  MutexLock lock(mutex_);
  TCPX_ASSIGN_OR_RETURN(const auto peer, find(agent));
  return connection(agent, peer, since);
}

void Peers::lost(const std::string& agent, ConnId conn) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(agent);
  if (found == peers_.end() || found->second->conn != conn) return;
  // Whatever it says, the connection has ended; the endpoint counts who uses it.
  static_cast<void>(endpoint_.remove_connection(conn));
  found->second->conn.reset();
}

Status Peers::notify(const std::string& agent, const NotifyMsg& message) {
  const size_t bytes = message.name.size() + message.msg.size();
  MutexLock lock(mutex_);
  TCPX_ASSIGN_OR_RETURN(const auto peer, find(agent));
  TCPX_ASSIGN_OR_RETURN(const auto conn, connection(agent, peer, Clock::steady().now()));
  if (conn) {
    const Status sent = endpoint_.notify(*conn, message);
    // Anything else says that the connection has ended: the next call makes it anew.
    if (!sent.is_ok() && sent.code() != Code::kExhausted) {
      static_cast<void>(endpoint_.remove_connection(*conn));
      peer->conn.reset();
    }
    return sent;
  }
  if (peer->waiting.size() >= kMaxWaitingMessages || peer->waiting_bytes + bytes > kMaxWaitingBytes) {
    return Status(
        Code::kExhausted, "notify",
        concat(peer->waiting.size(), " messages of ", peer->waiting_bytes, " bytes wait for the connection to ", agent));
  }
  peer->waiting.push_back(message);
  peer->waiting_bytes += bytes;
  return Status::ok();
}

Result<std::shared_ptr<Peers::Peer>> Peers::find(const std::string& agent) {
  const auto found = peers_.find(agent);
  if (found == peers_.end()) return Status(Code::kNotFound, "find agent", concat("nobody loaded the metadata of ", agent));
  return found->second;
}

Result<std::optional<ConnId>> Peers::connection(const std::string& agent, const std::shared_ptr<Peer>& peer, TimePoint since) {
  if (peer->conn || peer->connecting) return peer->conn;
  if (!peer->failure.is_ok() && peer->failed_at >= since) return peer->failure;
  connect(agent, peer);
  return peer->conn;
}

void Peers::connect(const std::string& agent, const std::shared_ptr<Peer>& peer) {
  if (stopped_) return;
  // Detached, so that nobody has to wait for an agent that does not answer; the destructor counts those that are left. The thread
  // waits for the lock that is held here before it can end.
  auto thread = start_thread("tcpx-nixl", [this, agent, peer] {
    Result<ConnId> made = Status(Code::kExhausted, "connect", "out of memory");
    try {
      made = try_to_connect(*peer);
    } catch (const std::bad_alloc&) {
    }
    end_connect(agent, *peer, made);
  });
  if (!thread.is_ok()) {
    peer->failure = thread.status();
    peer->failed_at = Clock::steady().now();
    return;
  }
  thread->detach();
  peer->connecting = true;
  ++connecting_;
}

Result<ConnId> Peers::try_to_connect(const Peer& peer) {
  const Deadline deadline = Deadline::after(kPatience);
  for (;;) {
    TCPX_RETURN_IF_ERROR(expect_listener(peer.metadata));
    auto conn = endpoint_.add_remote_endpoint(peer.metadata, kAttempt);
    if (conn.is_ok() || conn.status().code() != Code::kTimeout || deadline.expired()) return conn;
    MutexLock lock(mutex_);
    if (stopped_ || peer.forgotten) return conn;
  }
}

void Peers::end_connect(const std::string& agent, Peer& peer, const Result<ConnId>& conn) {
  MutexLock lock(mutex_);
  peer.connecting = false;
  if (conn.is_ok() && !stopped_) {
    if (peer.forgotten) {
      static_cast<void>(endpoint_.remove_connection(*conn));  // whatever it says, nobody uses it
    } else {
      peer.conn = *conn;
      for (const NotifyMsg& message : peer.waiting) {
        if (const Status sent = endpoint_.notify(*conn, message); !sent.is_ok())
          log(LogLevel::kWarning, "NIXL back-end: a notification to ", agent, " is lost: ", sent.to_string());
      }
    }
  } else if (!conn.is_ok() && !peer.forgotten) {
    peer.failure = conn.status();
    peer.failed_at = Clock::steady().now();
    if (!peer.waiting.empty())
      log(LogLevel::kWarning, "NIXL back-end: ", peer.waiting.size(), " notifications to ", agent,
          " are lost: ", conn.status().to_string());
  }
  peer.waiting.clear();
  peer.waiting_bytes = 0;
  --connecting_;
  changed_.notify_all();
}

}  // namespace tcpx::nixl
