// RemoteBook: one connection per remote endpoint, however many callers ask for it. The first caller connects while the others wait; the
// last one to remove the connection ends it. A failed connection is made anew, under the same id if other callers still use it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "endpoint/link.h"
#include "endpoint/metadata.h"

namespace tcpx {

/// Makes and ends the connections of a RemoteBook. Called on callers' threads.
class ConnectionMaker {
 public:
  /// Connects. @param again id of the connection to be made anew; nullopt: a new one
  virtual Result<std::shared_ptr<Connection>> dial(const EndpointMetadata& to, Deadline deadline,
                                                   std::optional<ConnId> again) = 0;
  virtual bool is_alive(ConnId conn) = 0;
  /// Puts a retired connection into use again. @return false: it has ended
  virtual bool revive(const std::shared_ptr<Connection>& connection) = 0;
  /// Ends what is left of a connection that could not be revived.
  virtual void drop(ConnId conn) = 0;
  /// Call when nobody uses the connection any more. @param keep keep it for a while, so that it can be revived
  virtual void retire(ConnId conn, bool keep) = 0;

 protected:
  ~ConnectionMaker() = default;
};

/// Any thread. Holds no lock while it connects.
class RemoteBook {
 public:
  /// @param stop set: every wait ends. Both must outlive this
  RemoteBook(ConnectionMaker& maker, const std::atomic<bool>& stop) : maker_(maker), stop_(stop) {}

  /// Adds a user of the connection with that endpoint. @return kTimeout; kCancelled; errors of `dial`
  Result<ConnId> add(const EndpointMetadata& metadata, Deadline deadline) TCPX_EXCLUDES(mutex_);
  /// Removes a user. @return kNotFound: the connection has none; nullopt: the connection is not in this book
  std::optional<Status> remove(ConnId conn) TCPX_EXCLUDES(mutex_);

 private:
  struct Remote {
    Mutex mutex;
    CondVar changed;
    bool connecting TCPX_GUARDED_BY(mutex) = false;  // one caller connects, the others wait for it
    std::shared_ptr<Connection> connection TCPX_GUARDED_BY(mutex);
    uint64_t users TCPX_GUARDED_BY(mutex) = 0;  // includes callers that are connecting
    uint64_t instance TCPX_GUARDED_BY(mutex) = 0;
  };
  Result<ConnId> connect(Remote& remote, const EndpointMetadata& metadata, Deadline deadline);

  ConnectionMaker& maker_;
  const std::atomic<bool>& stop_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Remote>> remotes_ TCPX_GUARDED_BY(mutex_);  // by address and GPU
  std::map<ConnId, std::shared_ptr<Remote>> by_connection_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx
