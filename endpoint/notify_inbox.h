// Notifications that have arrived and nobody has taken yet. Bounded: a link whose message finds no room keeps it, and with it the
// peer's window, until somebody takes some.
//
// Each connection has bounds of its own, so a peer whose notifications nobody takes fills its part and no other's. Of what all
// have together, in bytes, a connection gets at most as much as is left, so there is always some left for one that comes later.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "tcpx/endpoint.h"

namespace tcpx {

/// Of one connection, and of all.
inline constexpr size_t kMaxInboxShareBytes = 16u << 20;
inline constexpr size_t kMaxInboxBytes = 64u << 20;

/// Any thread.
class NotifyInbox {
 public:
  /// @param capacity notifications of one connection
  explicit NotifyInbox(size_t capacity) : capacity_(capacity) {}

  /// @return false: full for this connection, `message` is as it was
  bool push(NotifyMsg& message) {
    const size_t bytes = kEntryBytes + message.name.size() + message.msg.size();
    const MutexLock lock(mutex_);
    Share& share = shares_[message.conn];
    const size_t room = std::min(kMaxInboxShareBytes, kMaxInboxBytes - bytes_);
    if (share.messages >= capacity_ || share.bytes + bytes > room) return false;
    messages_.push_back(std::move(message));
    ++share.messages;
    share.bytes += bytes;
    bytes_ += bytes;
    come_.notify_all();
    return true;
  }
  /// Waits for the first one until the deadline when there is none.
  std::vector<NotifyMsg> take_all(Deadline deadline = Deadline(TimePoint{})) {
    std::vector<NotifyMsg> taken;
    const MutexLock lock(mutex_);
    while (messages_.empty() && !deadline.expired()) (void)come_.wait_until(mutex_, deadline.at());
    taken.swap(messages_);
    shares_.clear();
    bytes_ = 0;
    return taken;
  }
  size_t size() const {
    const MutexLock lock(mutex_);
    return messages_.size();
  }

 private:
  /// Bytes that a notification takes besides its texts.
  static constexpr size_t kEntryBytes = 128;
  struct Share {
    size_t messages = 0, bytes = 0;
  };

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar come_;
  std::vector<NotifyMsg> messages_ TCPX_GUARDED_BY(mutex_);
  std::unordered_map<ConnId, Share> shares_ TCPX_GUARDED_BY(mutex_);
  size_t bytes_ TCPX_GUARDED_BY(mutex_) = 0;
};

}  // namespace tcpx
