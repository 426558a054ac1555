#include "endpoint/remote_book.h"

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {

Result<ConnId> RemoteBook::add(const EndpointMetadata& metadata, Deadline deadline) {
  std::shared_ptr<Remote> remote;
  {
    const MutexLock lock(mutex_);
    auto& entry = remotes_[concat(metadata.host, ":", metadata.port, "/", metadata.gpu_idx)];
    if (entry == nullptr) entry = std::make_shared<Remote>();
    remote = entry;
  }
  {
    const MutexLock lock(remote->mutex);
    while (remote->connecting) {
      if (stop_) return Status(Code::kCancelled, "add remote endpoint", "the endpoint is closing");
      if (deadline.expired()) {
        return Status(Code::kTimeout, "add remote endpoint",
                      concat("another call was connecting with ", metadata.host, " until the deadline"));
      }
      (void)remote->changed.wait_until(remote->mutex, Deadline::after(kLookAtStop).earlier(deadline).at());
    }
    remote->connecting = true;
    ++remote->users;
  }
  // Ends on an exception, too, so that the threads that wait for this call go on.
  struct Turn {
    ConnectionMaker& maker;
    Remote& remote;
    bool succeeded = false;
    ~Turn() {
      // Under the lock, so that the next caller cannot revive the connection before it is retired.
      const MutexLock lock(remote.mutex);
      remote.connecting = false;
      remote.changed.notify_all();
      if (!succeeded && --remote.users == 0 && remote.connection != nullptr) maker.retire(remote.connection->id, true);
    }
  } turn{maker_, *remote};
  TCPX_ASSIGN_OR_RETURN(const auto conn, connect(*remote, metadata, deadline));
  const MutexLock lock(mutex_);
  by_connection_[conn] = remote;
  turn.succeeded = true;
  return conn;
}

// @return the existing connection or a new one. Only the caller that set `connecting` may call it.
Result<ConnId> RemoteBook::connect(Remote& remote, const EndpointMetadata& metadata, Deadline deadline) {
  std::shared_ptr<Connection> before;
  uint64_t instance = 0;
  bool used = false;
  {
    const MutexLock lock(remote.mutex);
    before = remote.connection;
    instance = remote.instance;
    used = remote.users > 1;
  }
  const bool same = before != nullptr && (metadata.instance == 0 || metadata.instance == instance) &&
                    (used ? maker_.is_alive(before->id) : maker_.revive(before));
  if (same) return before->id;
  std::optional<ConnId> again;
  if (before != nullptr && used) again = before->id;
  TCPX_ASSIGN_OR_RETURN(const auto connection, maker_.dial(metadata, deadline, again));
  if (before != nullptr && !again) {
    maker_.drop(before->id);
    const MutexLock lock(mutex_);
    by_connection_.erase(before->id);
  }
  const MutexLock lock(remote.mutex);
  remote.connection = connection;
  remote.instance = metadata.instance;
  return connection->id;
}

std::optional<Status> RemoteBook::remove(ConnId conn) {
  std::shared_ptr<Remote> remote;
  {
    const MutexLock lock(mutex_);
    const auto found = by_connection_.find(conn);
    if (found == by_connection_.end()) return std::nullopt;
    remote = found->second;
  }
  const MutexLock lock(remote->mutex);
  if (remote->users == 0 || remote->connection == nullptr || remote->connection->id != conn)
    return Status(Code::kNotFound, "remove connection", concat("no connection ", static_cast<uint64_t>(conn)));
  if (--remote->users == 0) maker_.retire(conn, true);
  return Status::ok();
}

}  // namespace tcpx
