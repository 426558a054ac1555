// WindowQueue: operations of this end that wait until the peer holds less of what it was told. Each window has its own line, in
// order, but for an announced send whose place is before one that has been announced: the peer may post the receives in order,
// and then nothing would give room before that one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "wire/control_stream.h"
#include "wire/credit_windows.h"

namespace tcpx {

/// One thread at a time.
class WindowQueue {
 public:
  /// Kept back from announced sends, for those that come late: their receives may be the first to be posted. The peer gives credit
  /// when some of them have ended, which must be before the next has no room.
  static constexpr uint64_t kLateSendBytes = kOfferWindowBytes / 2;
  /// Short sends leave the rest of their window to those with a long notification: they are done when they have left, so nothing
  /// else keeps them from running further ahead of their receives, and what waits for those is then no longer in a cache.
  static constexpr uint64_t kAheadBytes = 1u << 20;
  /// A short send that has waited so long for the window goes through the pipeline.
  static constexpr Duration kWindowPatience = std::chrono::milliseconds(1);
  /// Control bytes that wait for the socket; beyond, nothing new is offered to the peer. Well below kMaxBacklogBytes.
  static constexpr size_t kMuchBacklog = 16u << 20;

  struct Waiter {
    uint64_t operation = 0;
    Charge charge;
    std::optional<uint64_t> sequence;  ///< of a send
    bool may_be_offered = false;       ///< short, with something in it
    TimePoint since{};
  };
  struct Turn {
    uint64_t operation = 0;
    bool passes = false;  ///< it has taken its part of the window. Else it has waited too long, and is to be offered
  };

  /// Both must outlive this.
  WindowQueue(CreditWindows& windows, const ControlStream& stream) : windows_(windows), stream_(stream) {}

  /// @return true: it passes at once, and has taken its part of the window. False: `next` tells
  bool enter(const Waiter& waiter) {
    auto& line = lines_[static_cast<size_t>(waiter.charge.window)];
    const bool first = line.empty() || is_late(waiter);
    if (first && is_open(waiter)) {
      pass(waiter);
      return true;
    }
    line.insert(first ? line.begin() : line.end(), waiter);
    return false;
  }

  /// Takes out somebody whose turn it is.
  /// @param still_waits asked by the number of an operation; those that do not are forgotten
  template <class StillWaits>
  std::optional<Turn> next(TimePoint now, StillWaits still_waits) {
    for (auto& line : lines_) {
      while (!line.empty()) {
        const Waiter waiter = line.front();
        const bool there = still_waits(waiter.operation);
        const bool open = there && is_open(waiter);
        if (there && !open && !waits_too_long(waiter, now)) break;
        line.pop_front();
        if (open) pass(waiter);
        if (there) return Turn{.operation = waiter.operation, .passes = open};
      }
    }
    return std::nullopt;
  }

  void clear() {
    for (auto& line : lines_) line.clear();
  }

 private:
  bool is_late(const Waiter& waiter) const {
    return waiter.charge.window == Window::kSendOffers && *waiter.sequence < next_announced_;
  }
  bool is_open(const Waiter& waiter) {
    if (is_for_offers(waiter.charge.window) && stream_.backlog() >= kMuchBacklog) return false;
    return windows_.has_room(waiter.charge, kept_from(waiter));
  }
  // Bytes of the window that it leaves to others.
  uint64_t kept_from(const Waiter& waiter) const {
    const auto [window, bytes] = waiter.charge;
    const uint64_t size = windows_.peer_size(window);
    if (window == Window::kSendOffers && !is_late(waiter)) return size / 2;  // of a whole one kLateSendBytes
    const bool is_usual = window == Window::kSends && bytes + credit_step(window) <= kAheadBytes;
    return is_usual && size > kAheadBytes ? size - kAheadBytes : 0;
  }
  // Sends of several threads may stand here in another order than their receives will be posted in. So one that waits for long is
  // offered like a long message, for which there is a larger window; the rest wait, because that is faster.
  bool waits_too_long(const Waiter& waiter, TimePoint now) const {
    return waiter.charge.window == Window::kSends && waiter.may_be_offered && now - waiter.since >= kWindowPatience;
  }
  void pass(const Waiter& waiter) {
    windows_.take(waiter.charge);
    if (waiter.sequence) next_announced_ = std::max(next_announced_, *waiter.sequence + 1);
  }

  CreditWindows& windows_;
  const ControlStream& stream_;
  std::array<std::deque<Waiter>, kWindows> lines_;
  uint64_t next_announced_ = 0;  // behind the last sequence of a send that the peer has been told
};

// The longest message of each window fits when all before it have ended, though the peer has not told of the credit that it still
// owes: an announced send beside what is kept for late ones, a late one behind other late ones. Of a window that is not whole this
// end asks for more.
inline constexpr uint64_t kMaxNotifyBytes = kMaxNotifyNameBytes + kMaxNotifyTextBytes;
inline constexpr uint64_t kLongestSendOffer =
    window_cost(Window::kSendOffers, 0, kMaxWireRanges, 0, kMaxNotifyBytes, kMaxWireSources);
static_assert(window_cost(Window::kSends, kMaxInlineBytes, 0, 0, kMaxNotifyBytes) + credit_step(Window::kSends) <=
              bytes_of(Window::kSends));
static_assert(window_cost(Window::kRest, kMaxInlineBytes, 0, kMaxWireRanges, kMaxNotifyBytes) + credit_step(Window::kRest) <=
              bytes_of(Window::kRest));
static_assert(kLongestSendOffer + WindowQueue::kLateSendBytes + credit_step(Window::kSendOffers) <=
              bytes_of(Window::kSendOffers));
static_assert(kLongestSendOffer + credit_step(Window::kSendOffers) <= WindowQueue::kLateSendBytes);
static_assert(window_cost(Window::kRestOffers, kMaxInlineBytes, 0, kMaxWireRanges, kMaxNotifyBytes, kMaxWireSources) +
                  credit_step(Window::kRestOffers) <=
              bytes_of(Window::kRestOffers));

}  // namespace tcpx
