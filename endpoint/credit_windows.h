// CreditWindows: how much one end makes the other hold. Inline messages and announcements count apart, and sends apart from the
// rest, because they may wait for a receive. A sender takes the cost of a message from a window, and its receiver gives that
// back, as credit, when it holds nothing of the message any more. All of this is part of the protocol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
constexpr uint64_t credit_step(Window window) {
  return is_for_offers(window) ? kOfferWindowBytes / 4 : kInlineWindowBytes / 16;
}
/// The most that one peer makes an endpoint hold, besides what its notifications take in the inbox and buffers take that are on
/// their way to it.
inline constexpr uint64_t kMaxHeldBytes = 2 * kInlineWindowBytes + 2 * kOfferWindowBytes;

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
  // The peer's windows, which what this end says takes.

  /// @param kept bytes that must be left beside it
  bool has_room(const Charge& charge, uint64_t kept = 0) const {
    const uint64_t left = left_[index(charge.window)];
    return left >= kept && left - kept >= charge.bytes;
  }
  /// There is room for it.
  void take(const Charge& charge) { left_[index(charge.window)] -= charge.bytes; }
  /// It was taken, and not said after all.
  void put_back(const Charge& charge) { left_[index(charge.window)] += charge.bytes; }
  /// The peer gives credit. @return false: more than it was owed, nothing has changed
  bool refill(const Charge& credit) {
    uint64_t& left = left_[index(credit.window)];
    if (credit.bytes > bytes_of(credit.window) - left) return false;
    left += credit.bytes;
    return true;
  }

  // This end's windows, which what the peer says takes. They bound the memory that is held for it.

  /// @return false: more than the window lets through, nothing has changed
  bool count(const Charge& charge) {
    uint64_t& taken = taken_[index(charge.window)];
    if (charge.bytes > bytes_of(charge.window) - taken) return false;
    taken += charge.bytes;
    return true;
  }
  /// Bytes of the peer's that are held.
  uint64_t held(Window window) const { return taken_[index(window)] - owed_[index(window)]; }
  /// Nothing of it is held any more. @return credit that the peer is to be told now, or 0: not yet
  uint64_t give_back(const Charge& charge) {
    uint64_t& owed = owed_[index(charge.window)];
    owed += charge.bytes;
    if (owed < credit_step(charge.window)) return 0;
    taken_[index(charge.window)] -= owed;
    return std::exchange(owed, 0);
  }

 private:
  static constexpr size_t index(Window window) { return static_cast<size_t>(window); }

  std::array<uint64_t, kWindows> left_{kInlineWindowBytes, kInlineWindowBytes, kOfferWindowBytes, kOfferWindowBytes};
  std::array<uint64_t, kWindows> taken_{};  // by the peer, and not told that there is room again
  std::array<uint64_t, kWindows> owed_{};   // part of it that there is room for
};

}  // namespace tcpx
