// The sizes of received messages for plugins of type HOST. Such a plugin puts the bytes in place and reports their number once,
// when `test` says done; callers ask for it later (NetPlugin::received).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/mutex.h"
#include "net/net_plugin.h"

namespace tcpx {

/// Holds one entry per receive from its post until it is consumed or its comm is closed. Thread-safe.
class HostReceives {
 public:
  void posted(RecvComm comm, Request request) {
    const MutexLock lock(mutex_);
    entries_.insert_or_assign(request, Entry{comm, -1});
  }
  /// @param reported_bytes -1 when the plugin reported none. Requests that are not receives are ignored.
  void done(Request request, int32_t reported_bytes) {
    const MutexLock lock(mutex_);
    if (const auto entry = entries_.find(request); entry != entries_.end()) entry->second.reported_bytes = reported_bytes;
  }
  /// nullopt when unknown.
  std::optional<uint32_t> bytes(Request request) const {
    const MutexLock lock(mutex_);
    const auto entry = entries_.find(request);
    if (entry == entries_.end() || entry->second.reported_bytes < 0) return std::nullopt;
    return static_cast<uint32_t>(entry->second.reported_bytes);
  }
  void consumed(Request request) {
    const MutexLock lock(mutex_);
    entries_.erase(request);
  }
  void closed(RecvComm comm) {
    const MutexLock lock(mutex_);
    std::erase_if(entries_, [comm](const auto& entry) { return entry.second.comm == comm; });
  }

 private:
  struct Entry {
    RecvComm comm;
    int32_t reported_bytes;
  };
  mutable Mutex mutex_;
  std::map<Request, Entry> entries_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx
