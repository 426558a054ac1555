// ConnectionBook: makes connections to other endpoints, lets theirs in, finds a connection by its number, and ends it.
//
// Blocking steps run on the caller's thread or on threads of the Entrance; the progress thread gets finished links.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "endpoint/endpoint_parts.h"
#include "endpoint/entrance.h"
#include "endpoint/progress_engine.h"
#include "endpoint/remote_book.h"

namespace tcpx {

/// Any thread.
class ConnectionBook final : private ConnectionMaker {
 public:
  /// All must outlive it.
  struct Parts {
    const EndpointConfig& config;
    EndpointParts& endpoint;
    EndpointIdentity identity;
    const LinkShared& links;
    ChunkBudget& budget;
    PeerMemory& peers;
    ProgressEngine& engine;
    const std::atomic<bool>& stop;  ///< set: every wait ends
  };
  explicit ConnectionBook(const Parts& parts) : parts_(parts) {}

  /// Call first. @return kSystem and others: cannot listen
  Status listen();
  /// Ends every wait in `accept`. The stop flag must be set.
  void stop_waiting();
  /// Ends the waits and lets nobody in any more.
  void stop();

  Result<ConnId> connect(const std::string& ip, int gpu_idx, int port, Deadline deadline);
  Result<Endpoint::Accepted> accept(Deadline deadline);
  Status start_accepting() { return entrance_->admit_from_now_on(); }
  Result<ConnId> add_remote(const EndpointMetadata& remote, Deadline deadline) { return remotes_.add(remote, deadline); }
  Status remove(ConnId conn);

  /// @return kNotFound: no such connection
  Result<std::shared_ptr<Connection>> find(ConnId conn) const;
  /// Makes the id unknown. @return false: it was
  bool forget(ConnId conn);
  /// @return metadata with which other endpoints can connect to this one
  std::vector<uint8_t> metadata() const;

 private:
  LinkSetup link_setup(const EndpointIdentity& identity, const std::atomic<bool>* gives_way);
  std::string path_of_gpus(const LinkParts& link) const;
  std::shared_ptr<Connection> add(LinkParts parts, std::optional<ConnId> again = {}, bool unclaimed = false);
  std::optional<Endpoint::Accepted> claim(ConnId conn);

  Result<std::shared_ptr<Connection>> dial(const EndpointMetadata& to, Deadline deadline, std::optional<ConnId> again) override;
  Result<std::shared_ptr<Connection>> dial_at(const std::string& hosts, const EndpointMetadata& to, Deadline deadline,
                                              std::optional<ConnId> again);
  bool is_alive(ConnId conn) override;
  bool revive(const std::shared_ptr<Connection>& connection) override;
  void drop(ConnId conn) override;
  void retire(ConnId conn, bool keep) override;

  const Parts parts_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<ConnId, std::shared_ptr<Connection>> connections_;
  RemoteBook remotes_{*this, parts_.stop};
  std::unique_ptr<BootstrapServer> server_;
  std::string hosts_;  // for the metadata
  std::unique_ptr<Entrance> entrance_;
};

}  // namespace tcpx
