// WindowQueue: operations of this end that wait for room in the peer's windows (wire/credit_windows.h). Each window has a line of its
// own, first come, first served. The exception is a late send: an offered send whose sequence is before one that the peer has been
// told of. It goes first, because the peer may post its receives in order, and then no room comes free before the late send.
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
  /// Bytes that offered sends leave free for late ones, whose receives may be the first to be posted. The peer gives credit when some
  /// late sends have ended, which must be before the next one has no room.
  static constexpr uint64_t kLateSendBytes = kOfferWindowBytes / 2;
  /// Short sends take only this much of their window, and leave the rest to those with a long notification. A short send is done when
  /// it has left, so nothing else keeps it from running far ahead of its receive, and its data would then no longer be in a cache.
  static constexpr uint64_t kAheadBytes = 1u << 20;
  /// A short send that has waited this long for its window is offered like a long one.
  static constexpr Duration kWindowPatience = std::chrono::milliseconds(1);
  /// Nothing new is offered while more control bytes than this wait for the socket. Well below kMaxBacklogBytes.
  static constexpr size_t kMuchBacklog = 16u << 20;

  struct Waiter {
    uint64_t operation = 0;
    Charge charge;
    std::optional<uint64_t> sequence;  ///< of a send
    TimePoint since{};
  };
  struct Turn {
    uint64_t operation = 0;
    bool passes = false;  ///< true: it has taken its part of the window. False: it has waited too long; offer it
  };

  /// Both must outlive this.
  WindowQueue(CreditWindows& windows, const ControlStream& stream) : windows_(windows), stream_(stream) {}

  /// @return true: it has taken its part of the window at once. False: `next` will return it
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

  /// Takes out an operation whose turn it is.
  /// @param still_waits asked with the number of an operation; false: the operation is forgotten
  /// @param can_be_offered asked with the number of a short send; false: it is not offered now
  template <class StillWaits, class CanBeOffered>
  std::optional<Turn> next(TimePoint now, StillWaits still_waits, CanBeOffered can_be_offered) {
    for (auto& line : lines_) {
      while (!line.empty()) {
        const Waiter waiter = line.front();
        const bool there = still_waits(waiter.operation);
        const bool open = there && is_open(waiter);
        if (there && !open && !(waits_too_long(waiter, now) && can_be_offered(waiter.operation))) break;
        line.pop_front();
        if (open) pass(waiter);
        if (there) return Turn{.operation = waiter.operation, .passes = open};
      }
    }
    return std::nullopt;
  }

  bool empty() const {
    return std::all_of(lines_.begin(), lines_.end(), [](const auto& line) { return line.empty(); });
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
  // Bytes of the window that it must leave free for others.
  uint64_t kept_from(const Waiter& waiter) const {
    const auto [window, bytes] = waiter.charge;
    const uint64_t size = windows_.peer_size(window);
    if (window == Window::kSendOffers && !is_late(waiter)) return size / 2;  // kLateSendBytes if the window is whole
    const bool is_usual = window == Window::kSends && bytes + credit_step(window) <= kAheadBytes;
    return is_usual && size > kAheadBytes ? size - kAheadBytes : 0;
  }
  // Sends of several threads may stand here in another order than that of their receives. So a send that waits for long is offered
  // like a long one, in a larger window. The others keep waiting, because that is faster.
  bool waits_too_long(const Waiter& waiter, TimePoint now) const {
    return waiter.charge.window == Window::kSends && now - waiter.since >= kWindowPatience;
  }
  void pass(const Waiter& waiter) {
    windows_.take(waiter.charge);
    if (waiter.sequence) next_announced_ = std::max(next_announced_, *waiter.sequence + 1);
  }

  CreditWindows& windows_;
  const ControlStream& stream_;
  std::array<std::deque<Waiter>, kWindows> lines_;
  uint64_t next_announced_ = 0;  // highest sequence of a send that the peer has been told of, plus 1
};

// When all earlier messages have ended, the longest message of a whole window fits, even if the peer still owes less credit than it
// sends at once. An offered send fits beside what is kept for late ones, and a late one behind other late ones. If the window is not
// whole, this end asks for a larger one.
inline constexpr uint64_t kMaxNotifyBytes = kMaxNotifyNameBytes + kMaxNotifyTextBytes;
inline constexpr uint64_t kLongestSendOffer =
    window_cost(Window::kSendOffers, 0, kMaxWireRanges, 0, kMaxNotifyBytes, kMaxOfferBytes);
static_assert(window_cost(Window::kSends, kMaxInlineBytes, 0, 0, kMaxNotifyBytes) + credit_step(Window::kSends) <=
              bytes_of(Window::kSends));
static_assert(window_cost(Window::kRest, kMaxInlineBytes, 0, kMaxWireRanges, kMaxNotifyBytes) + credit_step(Window::kRest) <=
              bytes_of(Window::kRest));
static_assert(kLongestSendOffer + WindowQueue::kLateSendBytes + credit_step(Window::kSendOffers) <=
              bytes_of(Window::kSendOffers));
static_assert(kLongestSendOffer + credit_step(Window::kSendOffers) <= WindowQueue::kLateSendBytes);
static_assert(window_cost(Window::kRestOffers, kMaxInlineBytes, 0, kMaxWireRanges, kMaxNotifyBytes, kMaxOfferBytes) +
                  credit_step(Window::kRestOffers) <=
              bytes_of(Window::kRestOffers));

}  // namespace tcpx
