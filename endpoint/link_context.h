// LinkContext: state that the parts of a link share. Link decides about its state, LocalOperations and PeerOperations move
// the operations of each end, and all of them send to the peer over one control stream, within its windows.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "endpoint/inline_copies.h"
#include "endpoint/link_setup.h"
#include "endpoint/notify_inbox.h"
#include "endpoint/operation.h"
#include "endpoint/operation_frames.h"
#include "lanes/lanes.h"
#include "wire/control_stream.h"
#include "wire/credit_windows.h"

namespace tcpx {

/// Parts that all links of an endpoint share. Must outlive them.
struct LinkShared {
  OperationTable& operations;
  MemoryRegistry& memory;
  InlineCopies& copies;
  NotifyInbox& inbox;
  LaneParts lanes;
  PullParts pulls;
  const Clock& clock;
  uint32_t inline_bytes = 0;
  Duration peer_timeout = std::chrono::seconds(30);  ///< for which the peer's host may be silent
};

/// A link as callers see it without waiting for the thread that makes progress. They may keep it for longer than the link
/// lives, and the other way round, so it is shared.
struct LinkFace {
  std::atomic<bool> ended{false};             ///< nothing new is taken
  std::atomic<size_t> notifications{0};       ///< that have not left
  std::atomic<size_t> notification_bytes{0};  ///< of their names and texts
};
inline size_t size_of(const NotifyMsg& message) {
  return message.name.size() + message.msg.size();
}

/// A notification until it leaves, which counts as long as it lives.
struct Notification {
  Notification(ConnId to, uint64_t number, NotifyMsg text, std::shared_ptr<LinkFace> link_face)
      : conn(to), link(number), message(std::move(text)), face(std::move(link_face)) {
    face->notifications.fetch_add(1, std::memory_order_relaxed);
    face->notification_bytes.fetch_add(size_of(message), std::memory_order_relaxed);
  }
  ~Notification() {
    face->notifications.fetch_sub(1, std::memory_order_relaxed);
    face->notification_bytes.fetch_sub(size_of(message), std::memory_order_relaxed);
  }
  Notification(const Notification&) = delete;
  Notification& operator=(const Notification&) = delete;

  const ConnId conn;
  const uint64_t link;  ///< which of the connection's links, when it is made anew
  const NotifyMsg message;
  const std::shared_ptr<LinkFace> face;
  Notification* next_submitted = nullptr;
};

/// A transfer that the peer has started.
struct PeerJob final : Job {
  PeerJob(uint64_t operation, std::vector<HeldRange> memory, uint64_t size, const Charge& cost)
      : held(std::move(memory)), charge(cost) {
    number = operation;
    of_peer = true;
    ranges = held;
    bytes = size;
  }

  const std::vector<HeldRange> held;
  std::unique_ptr<NotifyMsg> notify;  ///< delivered here at the good end
  Charge charge;                      ///< given back at the end
  Packing on_host = Packing::kWhole;  ///< of a read: way_on_host of what the peer was told
};

enum class LinkStage : uint8_t {
  kOpen,
  kClosing,  ///< nothing new is taken, transfers under way are let end
  kFailed,   ///< nothing is sent any more; work that touches memory is waited for
  kClosed,
};

/// One thread at a time. The GPU must be current.
struct LinkContext {
  LinkContext(const LinkShared& shared_parts, ConnId conn, LinkParts parts)
      : shared(shared_parts),
        id(conn),
        peer(std::move(parts.peer)),
        place(std::move(parts.place)),
        host(std::move(parts.host)),
        eager(parts.eager),
        stream(std::move(parts.stream)),
        lanes(std::move(parts.send), std::move(parts.recv), shared.lanes, host.get(), shared.pulls, *stream, eager),
        windows(parts.peers_windows, parts.own_windows),
        notifications(shared.inbox),
        now(shared.clock.now()) {}

  bool has_failed() const { return stage >= LinkStage::kFailed; }
  /// Takes its part of this end's window. @return kProtocol when the peer said more than that lets through
  Status count(ControlType type, uint64_t operation, const Charge& charge) {
    if (windows.count(charge)) return Status::ok();
    return unexpected(type, operation, "more than the window lets through");
  }
  void give_back(const Charge& charge) {
    // A peer that does not read its answers gets no credit for more of them.
    if (stream->backlog() >= kMuchUnread) return windows.owe(charge);
    tell_credit(charge);
  }
  /// Credit that was kept back, asks for larger windows, and such windows of the peer's. @return true when there were some
  bool size_windows() {
    bool advanced = enlarge_windows();
    for (const Window window : kAllWindows) {
      if (windows.owes(window) && stream->backlog() < kMuchUnread) tell_credit({window, 0});
    }
    for (; const auto window = windows.take_ask(); advanced = true) stream->send(CreditFrame{.window = *window});
    return advanced;
  }
  /// @return false: it is not owed
  bool on(const CreditFrame& frame) {
    const bool is_ask = frame.bytes == 0 && frame.size == 0;
    if (is_ask) asks_[static_cast<size_t>(frame.window)] = true;
    return is_ask || windows.refill({frame.window, frame.bytes}, frame.size);
  }
  /// Tells the peer how an operation ended that it has started.
  void answer(uint64_t number, const Status& outcome) { stream->send(DoneFrame{.operation = number, .status = outcome}); }
  void refuse(uint64_t number, const Charge& charge, const Status& why) {
    give_back(charge);
    answer(number, why);
  }
  /// The peer does not begin a write of its own. @return null: none of that number is awaited
  std::unique_ptr<PeerJob> take_awaited_write(uint64_t number) {
    return std::unique_ptr<PeerJob>(static_cast<PeerJob*>(lanes.take_awaited_write(number).release()));
  }
  /// Takes the bytes of a transfer that the peer has begun and this end cannot use.
  /// @param lengths of its ranges; at least one
  /// @param charge given back behind them
  void let_go_by(uint64_t operation, uint64_t bytes, Packing packing, std::vector<uint64_t> lengths, const Charge& charge) {
    auto job = std::make_unique<PeerJob>(operation, std::vector<HeldRange>(), bytes, charge);
    job->packing = packing;
    job->unwanted = std::move(lengths);
    lanes.receive_begun(std::move(job));
  }
  /// Now, or when the inbox has room.
  void deliver(Delivery delivery) {
    if (notifications.deliver(delivery)) end_delivery(delivery);
  }
  /// Those that had to wait. @return true when there were some
  bool deliver_kept() {
    bool advanced = false;
    while (auto delivered = notifications.take_delivered()) {
      end_delivery(*delivered);
      advanced = true;
    }
    return advanced;
  }
  /// Unless `why` is ok, the link cannot go on: it fails as soon as it is asked again. Only the first reason counts.
  void break_with(Status why) {
    if (!why.is_ok() && broken.is_ok()) broken = std::move(why);
  }

  const LinkShared shared;
  const ConnId id;
  const EndpointIdentity peer;
  PeerMemory::Place place;               ///< what this link may hold for its peer
  const std::unique_ptr<HostPeer> host;  ///< null: the peer shares no memory with this end. The stream uses it
  const bool eager;                      ///< LinkParts::eager
  const std::unique_ptr<ControlStream> stream;
  Lanes lanes;
  CreditWindows windows;
  NotifyDelivery notifications;
  const std::shared_ptr<LinkFace> face = std::make_shared<LinkFace>();
  std::deque<std::unique_ptr<Notification>> notify_waits;  ///< for the peer's window
  ConnectionStats stats;
  TimePoint now;  ///< of this turn
  LinkStage stage = LinkStage::kOpen;
  bool begins_writes = true;  ///< on an eager link: the peer has taken all that have begun, as they were packed
  Status status;              ///< ok while it is of use
  Status broken;

 private:
  static constexpr Window kAllWindows[] = {Window::kSends, Window::kRest, Window::kSendOffers, Window::kRestOffers};
  /// Control bytes that wait for a peer, which may be answers.
  static constexpr size_t kMuchUnread = 256u << 10;
  /// Between two looks whether there is memory for the peer's asks.
  static constexpr Duration kEnlargeEvery = std::chrono::milliseconds(20);

  void tell_credit(const Charge& charge) {
    const Window window = charge.window;
    const uint64_t credit = windows.give_back(charge);
    if (credit == 0) return;
    const uint64_t kept = place.is_crowded() ? windows.cut(window, credit) : 0;
    place.shrink(kept);
    stream->send(CreditFrame{.window = window, .bytes = credit - kept, .size = kept > 0 ? windows.size(window) : 0});
  }
  // To a whole one while there is plenty, else to twice its size, else when others have gone or let go of something.
  bool enlarge_windows() {
    if (asks_ == Asks{} || now < next_enlarge_) return false;
    bool advanced = false;
    for (const Window window : kAllWindows) {
      const uint64_t size = windows.size(window), missing = bytes_of(window) - size;
      bool& asks = asks_[static_cast<size_t>(window)];
      if (!asks) continue;
      const uint64_t more = place.grow(missing, 2) ? missing : place.grow(std::min(missing, size)) ? std::min(missing, size) : 0;
      if (more == 0 && missing > 0) continue;
      asks = false;
      windows.enlarge(window, more);
      stream->send(CreditFrame{.window = window, .bytes = more, .size = windows.size(window)});
      advanced = true;
    }
    if (asks_ != Asks{}) next_enlarge_ = now + kEnlargeEvery;
    return advanced;
  }

  using Asks = std::array<bool, kWindows>;
  Asks asks_{};  // of the peer, for larger ones
  TimePoint next_enlarge_;

  void end_delivery(const Delivery& delivery) {
    give_back(delivery.charge);
    if (delivery.answers) answer(*delivery.answers, Status::ok());
  }
};

}  // namespace tcpx
