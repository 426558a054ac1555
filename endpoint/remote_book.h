// RemoteBook: one connection per remote endpoint, however many callers ask for it. The first one to ask connects, the others wait
// for it; the last one to remove it ends it. A connection that has ended is made anew, under the same id while somebody uses it.
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
  /// @param again the connection to be made anew; nullopt: a new one
  virtual Result<std::shared_ptr<Connection>> dial(const EndpointMetadata& to, Deadline deadline,
                                                   std::optional<ConnId> again) = 0;
  virtual bool is_alive(ConnId conn) = 0;
  /// Takes a connection into use again that nobody has used for a while. @return false: it has ended
  virtual bool revive(const std::shared_ptr<Connection>& connection) = 0;
  /// Ends what is left of a connection that could not be revived.
  virtual void drop(ConnId conn) = 0;
  /// Nobody uses the connection any more. @param keep for a while
  virtual void retire(ConnId conn, bool keep) = 0;

 protected:
  ~ConnectionMaker() = default;
};

/// Any thread. Holds no lock while it connects.
class RemoteBook {
 public:
  /// @param stop ends waits when set
  RemoteBook(ConnectionMaker& maker, const std::atomic<bool>& stop) : maker_(maker), stop_(stop) {}

  /// One more user of the connection with that endpoint. @return kTimeout; kCancelled; what `dial` says
  Result<ConnId> add(const EndpointMetadata& metadata, Deadline deadline) TCPX_EXCLUDES(mutex_);
  /// One user less. @return kNotFound: nobody uses it any more; nullopt: no connection of this book
  std::optional<Status> remove(ConnId conn) TCPX_EXCLUDES(mutex_);

 private:
  struct Remote {
    Mutex mutex;
    CondVar changed;
    bool connecting TCPX_GUARDED_BY(mutex) = false;  // one caller does, the others wait for it
    std::shared_ptr<Connection> connection TCPX_GUARDED_BY(mutex);
    uint64_t users TCPX_GUARDED_BY(mutex) = 0;  // those that are connecting count
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
