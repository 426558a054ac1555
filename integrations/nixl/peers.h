// Peers: the agents whose metadata was loaded, and the connection to each. A connection is made in the background, because a call
// of NIXL that waits stops every thread of its agent; what was said in the meantime follows when it stands.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "tcpx/endpoint.h"

namespace tcpx::nixl {

/// Any thread.
class Peers {
 public:
  /// Messages to one agent that wait for its connection, and their bytes. Beyond: kExhausted.
  static constexpr size_t kMaxWaitingMessages = 4096, kMaxWaitingBytes = size_t{32} << 20;

  /// A peer that does not answer is tried for so long; one attempt, which the destructor waits for, takes so long at most.
  static constexpr std::chrono::seconds kPatience{30}, kAttempt{5};

  /// @param endpoint must outlive this
  explicit Peers(Endpoint& endpoint) : endpoint_(endpoint) {}
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// Learns where the agent is and begins to connect to it. The same again changes nothing; another place replaces the first.
  /// @param metadata of its endpoint. @return kInvalidArgument, kUnsupported: it is none
  Status add(const std::string& agent, const std::string& metadata);
  /// @return kNotFound: nobody loaded its metadata
  Status expect(const std::string& agent);
  /// Tells the agents that had this name apart, by how often metadata was loaded until then. @return 0: nobody loaded its metadata
  uint64_t incarnation(const std::string& agent);
  /// Forgets the agent and ends the use of the connection. @return kNotFound
  Status remove(const std::string& agent);

  /// The connection to the agent; nullopt: it is being made, ask again. After an attempt that failed, another begins for whoever
  /// came later.
  /// @param since when the caller began to ask: of attempts that failed before that it hears nothing
  /// @return kNotFound: nobody loaded its metadata; kPeerGone: nobody listens there any more; else why the connection was refused
  Result<std::optional<ConnId>> connection_to(const std::string& agent, TimePoint since);
  /// This connection to the agent has failed: the next `connection_to` makes it anew.
  void lost(const std::string& agent, ConnId conn);
  /// Sends the message, or keeps it until the connection stands. @return as `connection_to`; kExhausted
  Status notify(const std::string& agent, const NotifyMsg& message);

 private:
  struct Peer {
    std::vector<uint8_t> metadata;
    uint64_t incarnation = 0;
    bool forgotten = false, connecting = false;
    std::optional<ConnId> conn;
    Status failure;  // of the last attempt
    TimePoint failed_at{};
    std::deque<NotifyMsg> waiting;
    size_t waiting_bytes = 0;
  };

  Result<std::shared_ptr<Peer>> find(const std::string& agent) TCPX_REQUIRES(mutex_);
  Result<std::optional<ConnId>> connection(const std::string& agent, const std::shared_ptr<Peer>& peer, TimePoint since)
      TCPX_REQUIRES(mutex_);
  void connect(const std::string& agent, const std::shared_ptr<Peer>& peer) TCPX_REQUIRES(mutex_);
  Result<ConnId> try_to_connect(const Peer& peer);
  void end_connect(const std::string& agent, Peer& peer, const Result<ConnId>& conn);

  Endpoint& endpoint_;
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ TCPX_GUARDED_BY(mutex_) = false;
  uint64_t loads_ TCPX_GUARDED_BY(mutex_) = 0;
  size_t connecting_ TCPX_GUARDED_BY(mutex_) = 0;  // threads
  std::map<std::string, std::shared_ptr<Peer>> peers_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx::nixl
