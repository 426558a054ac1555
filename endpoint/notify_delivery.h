// NotifyDelivery: notifications of one peer on their way into the inbox. One that finds no room there waits, in order, and with
// it what it holds back: its part of the window, and the answer to the write that brought it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "endpoint/credit_windows.h"
#include "endpoint/notify_inbox.h"

namespace tcpx {

/// Steps due once a message has been put in place, and the notification with it is in the inbox.
struct Delivery {
  std::unique_ptr<NotifyMsg> notify;  ///< null: there is none
  Charge charge;                      ///< to be given back
  std::optional<uint64_t> answers;    ///< a write of the peer that is to be confirmed, by number
};

/// One thread at a time; the inbox is anybody's.
class NotifyDelivery {
 public:
  /// @param inbox must outlive this
  explicit NotifyDelivery(NotifyInbox& inbox) : inbox_(inbox) {}

  /// @return true: it has been delivered. False: it is kept, `take_delivered` tells
  bool deliver(Delivery& delivery) {
    if (delivery.notify == nullptr || (kept_.empty() && inbox_.push(*delivery.notify))) return true;
    kept_.push_back(std::move(delivery));
    return false;
  }
  /// The oldest one that was kept, once there is room for it.
  std::optional<Delivery> take_delivered() {
    if (kept_.empty() || !inbox_.push(*kept_.front().notify)) return std::nullopt;
    Delivery delivered = std::move(kept_.front());
    kept_.pop_front();
    return delivered;
  }
  /// None is kept.
  bool empty() const { return kept_.empty(); }

 private:
  NotifyInbox& inbox_;
  std::deque<Delivery> kept_;
};

}  // namespace tcpx
