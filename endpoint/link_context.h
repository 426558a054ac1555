// LinkContext: the state that the parts of a link share. Link decides on the link's stage, LocalOperations moves the operations of
// this end and PeerOperations those of the peer; all send over one control stream, within the peer's windows.
#pragma once

#include <algorithm>
#include <atomic>
#include <bitset>
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
  Duration peer_timeout = std::chrono::seconds(30);  ///< longest silence of the peer's host
  bool repeats = false;  ///< writes and reads of this end whose checksums differ are started once more
};

/// The part of a link that callers see without the engine's lock. Shared, because callers and the link may each outlive the other.
struct LinkFace {
  std::atomic<bool> ended{false};             ///< the link takes nothing new
  std::atomic<size_t> notifications{0};       ///< that have not left yet
  std::atomic<size_t> notification_bytes{0};  ///< bytes of their names and texts
};
inline size_t size_of(const NotifyMsg& message) {
  return message.name.size() + message.msg.size();
}

/// A notification until it leaves. It counts in `face` as long as it lives.
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
  const uint64_t link;  ///< Connection::link
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
  std::unique_ptr<NotifyMsg> notify;  ///< delivered here if the job ends well
  Charge charge;                      ///< given back at the end
  WaySet ways = 0;                    ///< read: of the offer, besides the network
};

enum class LinkStage : uint8_t {
  kOpen,
  kClosing,  ///< takes nothing new; transfers under way may end
  kFailed,   ///< sends nothing any more; waits for work that touches memory
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
        inline_bytes(parts.inline_bytes),
        eager(parts.eager),
        stream(std::move(parts.stream)),
        lanes(std::move(parts.send), std::move(parts.recv), shared.lanes, host.get(), shared.pulls, *stream, eager,
              parts.sum_key),
        windows(parts.peers_windows, parts.own_windows),
        notifications(shared.inbox),
        now(shared.clock.now()) {}

  bool has_failed() const { return stage >= LinkStage::kFailed; }
  /// Takes the cost of the peer's message from this end's window. @return kProtocol: the window has no room for it
  Status count(FrameType type, uint64_t operation, const Charge& charge) {
    if (windows.count(charge)) return Status::ok();
    return unexpected(type, operation, "more than the window lets through");
  }
  void give_back(const Charge& charge) {
    // A peer that does not read its answers gets no credit for more requests.
    if (stream->backlog() >= kMuchUnread) return windows.owe(charge);
    tell_credit(charge);
  }
  /// Grants the peer's asks for larger windows, sends credit that was kept back, and sends this end's asks.
  /// @return true when a window was enlarged or an ask was sent
  bool size_windows() {
    bool advanced = asks_.any() && enlarge_windows();
    for (const Window window : kAllWindows) {
      if (windows.owes(window) && stream->backlog() < kMuchUnread) tell_credit({window, 0});
    }
    for (; const auto window = windows.take_ask(); advanced = true) stream->send(CreditFrame{.window = *window});
    return advanced;
  }
  /// @return false: more credit than the peer owes
  bool on(const CreditFrame& frame) {
    const bool is_ask = frame.bytes == 0 && frame.size == 0;
    if (is_ask) asks_[static_cast<size_t>(frame.window)] = true;
    return is_ask || windows.refill({frame.window, frame.bytes}, frame.size);
  }
  /// Tells the peer how one of its operations ended.
  void answer(uint64_t number, const Status& outcome) { stream->send(DoneFrame{.operation = number, .status = outcome}); }
  void refuse(uint64_t number, const Charge& charge, const Status& why) {
    give_back(charge);
    answer(number, why);
  }
  /// Takes back the job of a write that the peer will not begin. @return null: no such write is awaited
  std::unique_ptr<PeerJob> take_awaited_write(uint64_t number) {
    return std::unique_ptr<PeerJob>(static_cast<PeerJob*>(lanes.take_awaited_write(number).release()));
  }
  /// Receives and discards the bytes of a transfer that the peer has begun and this end cannot use.
  /// @param lengths bytes of its ranges; at least one
  /// @param charge given back when all bytes have come
  void let_go_by(uint64_t operation, uint64_t bytes, Packing packing, std::vector<uint64_t> lengths, const Charge& charge) {
    auto job = std::make_unique<PeerJob>(operation, std::vector<HeldRange>(), bytes, charge);
    job->packing = packing;
    job->unwanted = std::move(lengths);
    lanes.receive_begun(std::move(job));
  }
  /// Delivers now, or later through `deliver_kept` if the inbox is full.
  void deliver(Delivery delivery) {
    if (notifications.deliver(delivery)) end_delivery(delivery);
  }
  /// Delivers what had to wait for the inbox. @return true when there was some
  bool deliver_kept() {
    if (notifications.empty()) return false;
    bool advanced = false;
    while (auto delivered = notifications.take_delivered()) {
      end_delivery(*delivered);
      advanced = true;
    }
    return advanced;
  }
  /// Unless `why` is ok, the link fails at its next turn. Only the first reason counts.
  void break_with(Status why) {
    if (!why.is_ok() && broken.is_ok()) broken = std::move(why);
  }

  const LinkShared shared;
  const ConnId id;
  const EndpointIdentity peer;
  PeerMemory::Place place;               ///< what this link may hold for its peer
  const std::unique_ptr<HostPeer> host;  ///< used by the stream; null: the peer shares no memory with this end
  const uint32_t inline_bytes;           ///< LinkParts::inline_bytes; the peer's is in `peer`
  const bool eager;                      ///< LinkParts::eager
  const std::unique_ptr<ControlStream> stream;
  Lanes lanes;
  CreditWindows windows;
  NotifyDelivery notifications;
  const std::shared_ptr<LinkFace> face = std::make_shared<LinkFace>();
  std::deque<std::unique_ptr<Notification>> notify_waits;  ///< wait for the peer's window
  ConnectionStats stats;
  TimePoint now;  ///< of this turn
  LinkStage stage = LinkStage::kOpen;
  bool begins_writes = true;  ///< eager link: the peer has taken every begun write as it was packed
  Status status;              ///< ok while the link takes operations
  Status broken;              ///< set by break_with

 private:
  static constexpr Window kAllWindows[] = {Window::kSends, Window::kRest, Window::kSendOffers, Window::kRestOffers};
  /// Control bytes waiting to be sent; from here on the peer gets no credit.
  static constexpr size_t kMuchUnread = 256u << 10;
  /// How often memory is looked for when the peer's asks could not be granted.
  static constexpr Duration kEnlargeEvery = std::chrono::milliseconds(20);

  void tell_credit(const Charge& charge) {
    const Window window = charge.window;
    const uint64_t credit = windows.give_back(charge);
    if (credit == 0) return;
    const uint64_t kept = place.is_crowded() ? windows.cut(window, credit) : 0;
    place.shrink(kept);
    stream->send(CreditFrame{.window = window, .bytes = credit - kept, .size = kept > 0 ? windows.size(window) : 0});
  }
  // Makes a window whole while memory is plentiful, else doubles it; if neither fits, tries again later.
  bool enlarge_windows() {
    if (now < next_enlarge_) return false;
    bool advanced = false;
    for (const Window window : kAllWindows) {
      const uint64_t size = windows.size(window), missing = bytes_of(window) - size;
      if (!asks_[static_cast<size_t>(window)]) continue;
      const uint64_t more = place.grow(missing, 2) ? missing : place.grow(std::min(missing, size)) ? std::min(missing, size) : 0;
      if (more == 0 && missing > 0) continue;
      asks_[static_cast<size_t>(window)] = false;
      windows.enlarge(window, more);
      stream->send(CreditFrame{.window = window, .bytes = more, .size = windows.size(window)});
      advanced = true;
    }
    if (asks_.any()) next_enlarge_ = now + kEnlargeEvery;
    return advanced;
  }

  std::bitset<kWindows> asks_;  // the peer's, for larger windows
  TimePoint next_enlarge_;

  void end_delivery(const Delivery& delivery) {
    give_back(delivery.charge);
    if (delivery.answers) answer(*delivery.answers, Status::ok());
  }
};

}  // namespace tcpx
