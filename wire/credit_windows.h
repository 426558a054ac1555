// CreditWindows: bounds the memory that one end makes the other hold. This is part of the protocol. Inline messages and offers
// have separate windows. Sends have separate windows from other operations, because a send may wait for a receive. A sender takes
// the cost of a message from a window; the receiver gives it back as credit once it holds nothing of the message any more.
//
// The receiver decides the size of a window. The window is whole or small at first, and the receiver tells the sender every
// change. A sender that finds no room in a window that is not whole asks once for a larger one, and waits. The receiver grants as
// much as its peers may have together (endpoint/peer_memory.h). It shrinks a window only by keeping credit back, so messages in
// flight always fit.
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
/// Credit is sent once this many bytes are owed, to save frames. The peer does not know of a smaller debt.
constexpr uint64_t credit_step(Window window, uint64_t size) {
  return is_for_offers(window) ? size / 4 : size / 16;
}
constexpr uint64_t credit_step(Window window) {
  return credit_step(window, bytes_of(window));
}
/// The most that one peer makes an endpoint hold, apart from notifications in the inbox and the buffers of the control stream.
inline constexpr uint64_t kMaxHeldBytes = 2 * kInlineWindowBytes + 2 * kOfferWindowBytes;
/// Smallest size of each window.
inline constexpr uint64_t kSmallWindowBytes = 256u << 10;

/// Cost of a message in a window: its bytes and a fixed part.
constexpr uint64_t window_cost(uint64_t bytes) {
  return bytes + 64;
}
/// Cost of a frame that begins an operation: about the memory that the receiver needs for it.
/// @param data_bytes of the message's data, or of the answer that carries a short read's data
constexpr uint64_t window_cost(Window window, uint64_t data_bytes, size_t lengths, size_t ranges, size_t notify_bytes,
                               size_t offer_bytes = 0) {
  return window_cost(data_bytes + (is_for_offers(window) ? 192 : 0) + 8 * lengths + 32 * ranges + offer_bytes + notify_bytes);
}
/// Bytes that a message takes from a window.
struct Charge {
  Window window = Window::kSends;
  uint64_t bytes = 0;
};

/// The windows of both directions of one connection. One thread at a time.
class CreditWindows {
 public:
  enum class Size : uint8_t { kWhole, kSmall };
  /// @param peers initial size of the peer's windows. @param own initial size of this end's windows
  explicit CreditWindows(Size peers = Size::kWhole, Size own = Size::kWhole) {
    for (size_t i = 0; i < kWindows; ++i) {
      const uint64_t whole = bytes_of(static_cast<Window>(i));
      left_[i] = peer_size_[i] = peers == Size::kWhole ? whole : kSmallWindowBytes;
      size_[i] = own == Size::kWhole ? whole : kSmallWindowBytes;
    }
  }

  // The peer's windows: messages of this end take from them.

  /// Asks for a larger window if there is no room. @param kept bytes that must stay free
  bool has_room(const Charge& charge, uint64_t kept = 0) {
    const size_t i = index(charge.window);
    if (left_[i] >= kept && left_[i] - kept >= charge.bytes) return true;
    if (asks_[i] == Ask::kNone && peer_size_[i] < bytes_of(charge.window)) asks_[i] = Ask::kDue;
    return false;
  }
  /// Takes the cost of a message. `has_room` must be true.
  void take(const Charge& charge) { left_[index(charge.window)] -= charge.bytes; }
  /// Undoes `take` for a message that was not sent after all.
  void put_back(const Charge& charge) { left_[index(charge.window)] += charge.bytes; }
  uint64_t peer_size(Window window) const { return peer_size_[index(window)]; }
  /// A window that the peer is to be asked to enlarge. Each ask is returned once.
  std::optional<Window> take_ask() {
    const auto due = std::find(asks_.begin(), asks_.end(), Ask::kDue);
    if (due == asks_.end()) return std::nullopt;
    *due = Ask::kTold;
    return static_cast<Window>(due - asks_.begin());
  }
  /// The peer gives credit. @param size of the window from now on, 0: unchanged
  /// @return false: more credit than the peer owes, or a size that is not allowed; nothing has changed
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

  // This end's windows: messages of the peer take from them. They bound the memory held for the peer.

  /// Takes the cost of a message that came. @return false: it exceeds the window; nothing has changed
  bool count(const Charge& charge) {
    uint64_t& taken = taken_[index(charge.window)];
    if (charge.bytes > size(charge.window) - taken) return false;
    taken += charge.bytes;
    return true;
  }
  uint64_t size(Window window) const { return size_[index(window)]; }
  /// Bytes held for the peer.
  uint64_t held(Window window) const { return taken_[index(window)] - owed_[index(window)]; }
  bool owes(Window window) const { return owed_[index(window)] > 0; }
  /// The message is no longer held; its credit is given later.
  void owe(const Charge& charge) { owed_[index(charge.window)] += charge.bytes; }
  /// The message is no longer held. @return credit to send to the peer now; 0: not yet
  uint64_t give_back(const Charge& charge) {
    owe(charge);
    uint64_t& owed = owed_[index(charge.window)];
    if (owed == 0 || owed < credit_step(charge.window, size(charge.window))) return 0;
    taken_[index(charge.window)] -= owed;
    return std::exchange(owed, 0);
  }
  /// The caller tells the peer the new size and `bytes` of credit. @param bytes must not make it larger than a whole window
  void enlarge(Window window, uint64_t bytes) { size_[index(window)] += bytes; }
  /// Shrinks the window towards a small one by keeping part of `credit` back; tell the peer the new size. @return bytes kept back
  uint64_t cut(Window window, uint64_t credit) {
    const uint64_t kept = std::min(credit, size(window) - kSmallWindowBytes);
    size_[index(window)] -= kept;
    return kept;
  }

 private:
  enum class Ask : uint8_t { kNone, kDue, kTold };
  static constexpr size_t index(Window window) { return static_cast<size_t>(window); }

  std::array<uint64_t, kWindows> left_{}, peer_size_{};
  std::array<Ask, kWindows> asks_{};        // for a larger window
  std::array<uint64_t, kWindows> size_{};   // as the peer knows it
  std::array<uint64_t, kWindows> taken_{};  // as the peer knows it
  std::array<uint64_t, kWindows> owed_{};   // part of taken_ that is no longer held
};

}  // namespace tcpx
