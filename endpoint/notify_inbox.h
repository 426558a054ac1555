// Notifications that have arrived and nobody has taken yet. Bounded: a link whose message finds no room keeps it, and with it the
// peer's window, until somebody takes some.
#pragma once

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "tcpx/endpoint.h"

namespace tcpx {

/// Any thread.
class NotifyInbox {
 public:
  explicit NotifyInbox(size_t capacity) : capacity_(capacity) {}

  /// @return false: full, `message` is as it was
  bool push(NotifyMsg& message) {
    const MutexLock lock(mutex_);
    if (messages_.size() >= capacity_) return false;
    messages_.push_back(std::move(message));
    come_.notify_all();
    return true;
  }
  /// Waits for the first one until the deadline when there is none.
  std::vector<NotifyMsg> take_all(Deadline deadline = Deadline(TimePoint{})) {
    std::vector<NotifyMsg> taken;
    const MutexLock lock(mutex_);
    while (messages_.empty() && !deadline.expired()) (void)come_.wait_until(mutex_, deadline.at());
    taken.swap(messages_);
    return taken;
  }
  size_t size() const {
    const MutexLock lock(mutex_);
    return messages_.size();
  }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar come_;
  std::vector<NotifyMsg> messages_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx
