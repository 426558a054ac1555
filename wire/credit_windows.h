// CreditWindows: how much one end makes the other hold. Inline messages and announcements count apart, and sends apart from the
// rest, because they may wait for a receive. A sender takes the cost of a message from a window, and its receiver gives that
// back, as credit, when it holds nothing of the message any more. All of this is part of the protocol.
//
// A window has a size, which its receiver decides: whole or small at first, and told anew whenever it changes. A sender that has no
// room in one that is not whole asks once for a larger one, and waits. The receiver gives what its peers may have
// (endpoint/peer_memory.h), and makes a window smaller only by keeping credit back, so what is under way always fits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace tcpx {

enum class Window : uint8_t { kSends, kRest, kSendOffers, kRestOffers };
inline constexpr size_t kWindows = 4;
inline constexpr uint64_t kInlineWindowBytes = 4u << 20;
inline constexpr uint64_t kOfferWindowBytes = 16u << 20;
constexpr bool is_for_offers(Window window) {
  return window >= Window::kSendOffers;
}
constexpr uint64_t bytes_of(Window window) {
  return is_for_offers(window) ? kOfferWindowBytes : kInlineWindowBytes;
}
/// Credit is given when so much is owed, so that it takes few frames: of less the peer does not know.
constexpr uint64_t credit_step(Window window, uint64_t size) {
  return is_for_offers(window) ? size / 4 : size / 16;
}
constexpr uint64_t credit_step(Window window) {
  return credit_step(window, bytes_of(window));
}
/// The most that one peer makes an endpoint hold, besides what its notifications take in the inbox and buffers take that are on
/// their way to it.
inline constexpr uint64_t kMaxHeldBytes = 2 * kInlineWindowBytes + 2 * kOfferWindowBytes;
/// Of each window, at least.
inline constexpr uint64_t kSmallWindowBytes = 256u << 10;

/// Cost of a message in a window: its bytes, and something for being there at all.
constexpr uint64_t window_cost(uint64_t bytes) {
  return bytes + 64;
}
/// The same of what begins an operation, about the memory that it takes.
/// @param data_bytes behind it, or of the answer that goes behind a frame
constexpr uint64_t window_cost(Window window, uint64_t data_bytes, size_t lengths, size_t ranges, size_t notify_bytes,
                               size_t sources = 0) {
  return window_cost(data_bytes + (is_for_offers(window) ? 192 : 0) + 8 * lengths + 32 * ranges + 24 * sources + notify_bytes);
}
/// Part of a window that something takes.
struct Charge {
  Window window = Window::kSends;
  uint64_t bytes = 0;
};

/// Both directions of one connection. One thread at a time.
class CreditWindows {
 public:
  enum class Size : uint8_t { kWhole, kSmall };
  /// @param peers of the peer's windows, @param own of this end's, at first
  explicit CreditWindows(Size peers = Size::kWhole, Size own = Size::kWhole) {
    for (size_t i = 0; i < kWindows; ++i) {
      const uint64_t whole = bytes_of(static_cast<Window>(i));
      left_[i] = peer_size_[i] = peers == Size::kWhole ? whole : kSmallWindowBytes;
      size_[i] = own == Size::kWhole ? whole : kSmallWindowBytes;
    }
  }

  // The peer's windows, which what this end says takes.

  /// @param kept bytes that must be left beside it
  bool has_room(const Charge& charge, uint64_t kept = 0) {
    const size_t i = index(charge.window);
    if (left_[i] >= kept && left_[i] - kept >= charge.bytes) return true;
    if (asks_[i] == Ask::kNone && peer_size_[i] < bytes_of(charge.window)) asks_[i] = Ask::kDue;
    return false;
  }
  /// There is room for it.
  void take(const Charge& charge) { left_[index(charge.window)] -= charge.bytes; }
  /// It was taken, and not said after all.
  void put_back(const Charge& charge) { left_[index(charge.window)] += charge.bytes; }
  uint64_t peer_size(Window window) const { return peer_size_[index(window)]; }
  /// A window in which something had no room, and that the peer is to be asked to make larger.
  std::optional<Window> take_ask() {
    const auto due = std::find(asks_.begin(), asks_.end(), Ask::kDue);
    if (due == asks_.end()) return std::nullopt;
    *due = Ask::kTold;
    return static_cast<Window>(due - asks_.begin());
  }
  /// The peer gives credit. @param size of the window from now on, 0: as before
  /// @return false: more than it was owed, or no such size; nothing has changed
  bool refill(const Charge& credit, uint64_t size = 0) {
    const size_t i = index(credit.window);
    if (size != 0 && (size < kSmallWindowBytes || size > bytes_of(credit.window) || size < left_[i])) return false;
    const uint64_t now = size != 0 ? size : peer_size_[i];
    if (credit.bytes > now - left_[i]) return false;
    left_[i] += credit.bytes;
    if (size != 0) asks_[i] = Ask::kNone;
    peer_size_[i] = now;
    return true;
  }

  // This end's windows, which what the peer says takes. They bound the memory that is held for it.

  /// @return false: more than the window lets through, nothing has changed
  bool count(const Charge& charge) {
    uint64_t& taken = taken_[index(charge.window)];
    if (charge.bytes > size(charge.window) - taken) return false;
    taken += charge.bytes;
    return true;
  }
  uint64_t size(Window window) const { return size_[index(window)]; }
  /// Bytes of the peer's that are held.
  uint64_t held(Window window) const { return taken_[index(window)] - owed_[index(window)]; }
  bool owes(Window window) const { return owed_[index(window)] > 0; }
  /// Nothing of it is held any more, and the peer is to be told later.
  void owe(const Charge& charge) { owed_[index(charge.window)] += charge.bytes; }
  /// The same. @return credit that the peer is to be told now, or 0: not yet
  uint64_t give_back(const Charge& charge) {
    owe(charge);
    uint64_t& owed = owed_[index(charge.window)];
    if (owed == 0 || owed < credit_step(charge.window, size(charge.window))) return 0;
    taken_[index(charge.window)] -= owed;
    return std::exchange(owed, 0);
  }
  /// The peer is to be told that, and gets so much more credit. @param bytes it is no larger than a whole one then
  void enlarge(Window window, uint64_t bytes) { size_[index(window)] += bytes; }
  /// Keeps back as much of `credit` as a small window does without, for which the peer is to be told the size. @return so much
  uint64_t cut(Window window, uint64_t credit) {
    const uint64_t kept = std::min(credit, size(window) - kSmallWindowBytes);
    size_[index(window)] -= kept;
    return kept;
  }

 private:
  enum class Ask : uint8_t { kNone, kDue, kTold };
  static constexpr size_t index(Window window) { return static_cast<size_t>(window); }

  std::array<uint64_t, kWindows> left_{}, peer_size_{};
  std::array<Ask, kWindows> asks_{};        // for a larger one
  std::array<uint64_t, kWindows> size_{};   // as the peer knows it
  std::array<uint64_t, kWindows> taken_{};  // by the peer, and not told that there is room again
  std::array<uint64_t, kWindows> owed_{};   // part of it that there is room for
};

}  // namespace tcpx
