// NotifyInbox: notifications that have arrived and that the application has not taken yet. Bounded for each connection, so a peer whose
// notifications nobody takes fills only its own part, and for all together. A connection never gets more bytes than are left, so there
// is always room for one that comes later.
//
// NotifyDelivery brings the notifications of one peer into the inbox. A notification that finds no room waits there in order. So do its
// part of the peer's window and the answer to the write that brought it, until the application takes some notifications.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "endpoint/event_signal.h"
#include "tcpx/endpoint.h"
#include "wire/credit_windows.h"

namespace tcpx {

inline constexpr size_t kMaxInboxShareBytes = 16u << 20;  ///< of one connection
inline constexpr size_t kMaxInboxBytes = 64u << 20;       ///< of all connections
/// The inbox's part of the bytes that peers may make an endpoint hold.
constexpr size_t inbox_part(uint64_t peer_bytes) {
  return static_cast<size_t>(std::min<uint64_t>(kMaxInboxBytes, peer_bytes / 4));
}

/// Any thread.
class NotifyInbox {
 public:
  /// Bytes counted for a notification besides its texts.
  static constexpr size_t kEntryBytes = 128;

  /// @param capacity notifications of one connection. @param come raised for each notification; may be null
  /// @param most bytes of all connections
  explicit NotifyInbox(size_t capacity, const EventSignal* come = nullptr, size_t most = kMaxInboxBytes)
      : capacity_(capacity), signal_(come), most_(most) {}

  /// @return false: no room for this connection; `message` is unchanged
  bool push(NotifyMsg& message) {
    if (!put(message)) return false;
    if (signal_ != nullptr) signal_->raise();
    return true;
  }
  /// Takes all notifications. If there is none, waits for the first one until the deadline.
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
  size_t bytes() const {
    const MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  struct Share {
    size_t messages = 0, bytes = 0;
  };

  bool put(NotifyMsg& message) {
    const size_t bytes = kEntryBytes + message.name.size() + message.msg.size();
    const MutexLock lock(mutex_);
    Share& share = shares_[message.conn];
    const size_t room = std::min(kMaxInboxShareBytes, most_ - bytes_);
    if (share.messages >= capacity_ || share.bytes + bytes > room) return false;
    messages_.push_back(std::move(message));
    ++share.messages;
    share.bytes += bytes;
    bytes_ += bytes;
    come_.notify_all();
    return true;
  }

  const size_t capacity_;
  const EventSignal* const signal_;
  const size_t most_;
  mutable Mutex mutex_;
  CondVar come_;
  std::vector<NotifyMsg> messages_ TCPX_GUARDED_BY(mutex_);
  std::unordered_map<ConnId, Share> shares_ TCPX_GUARDED_BY(mutex_);
  size_t bytes_ TCPX_GUARDED_BY(mutex_) = 0;
};

/// The steps left when a message is in place: deliver its notification, then give back its charge and confirm its write.
struct Delivery {
  std::unique_ptr<NotifyMsg> notify;  ///< null: there is none
  Charge charge;                      ///< to be given back
  std::optional<uint64_t> answers;    ///< number of the peer's write to confirm
};

/// One thread at a time.
class NotifyDelivery {
 public:
  /// @param inbox must outlive this
  explicit NotifyDelivery(NotifyInbox& inbox) : inbox_(inbox) {}

  /// @return true: delivered. False: kept; `take_delivered` will return it
  bool deliver(Delivery& delivery) {
    if (delivery.notify == nullptr || (kept_.empty() && inbox_.push(*delivery.notify))) return true;
    kept_.push_back(std::move(delivery));
    return false;
  }
  /// Delivers and returns the oldest kept one; nullopt: there is none, or no room for it.
  std::optional<Delivery> take_delivered() {
    if (kept_.empty() || !inbox_.push(*kept_.front().notify)) return std::nullopt;
    Delivery delivered = std::move(kept_.front());
    kept_.pop_front();
    return delivered;
  }
  bool empty() const { return kept_.empty(); }

 private:
  NotifyInbox& inbox_;
  std::deque<Delivery> kept_;
};

}  // namespace tcpx
