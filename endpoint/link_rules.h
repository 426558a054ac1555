// Numbers that the parts of a link agree on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tcpx {

/// What one end makes the other hold, by kind: inline messages and announcements, sends apart from the rest, because they may
/// wait for a receive. Each kind has a window: whoever says something takes its cost from there, and whoever hears it gives that
/// back when nothing of it is held any more. All of this is part of the protocol.
enum class Window : uint8_t { kSends, kRest, kSendOffers, kRestOffers };
inline constexpr size_t kWindows = 4;
inline constexpr uint64_t kInlineWindowBytes = 1u << 20;
inline constexpr uint64_t kOfferWindowBytes = 16u << 20;
constexpr bool is_for_offers(Window window) {
  return window >= Window::kSendOffers;
}
constexpr uint64_t bytes_of(Window window) {
  return is_for_offers(window) ? kOfferWindowBytes : kInlineWindowBytes;
}
/// The most that one peer makes an endpoint hold, besides what its notifications take in the inbox and buffers take that are on
/// their way to it.
inline constexpr uint64_t kMaxHeldBytes = 2 * kInlineWindowBytes + 2 * kOfferWindowBytes;
/// What a message takes of a window: its bytes, and something for being there at all.
constexpr uint64_t window_cost(uint64_t bytes) {
  return bytes + 64;
}
/// The same of what begins an operation, about the memory that it takes.
/// @param data_bytes behind it, or of the answer that goes behind a frame
constexpr uint64_t window_cost(Window window, uint64_t data_bytes, size_t lengths, size_t ranges, size_t notify_bytes) {
  return window_cost(data_bytes + (is_for_offers(window) ? 192 : 0) + 8 * lengths + 32 * ranges + notify_bytes);
}
/// Part of a window that something takes.
struct Charge {
  Window window = Window::kSends;
  uint64_t bytes = 0;
};
/// Kept back from announced sends, for those that come late: their receives may be the first to be posted.
inline constexpr uint64_t kLateSendBytes = kOfferWindowBytes / 4;
/// A short send that has waited so long for the window goes through the pipeline.
inline constexpr Duration kWindowPatience = std::chrono::milliseconds(1);
/// Holes between sends that a peer has given up before they were announced. Each is a send that was announced, or waits there.
inline constexpr size_t kMaxGivenUpSends = 1u << 17;
/// Control bytes that wait for the socket; beyond, nothing new is offered to the peer. Well below kMaxBacklogBytes.
inline constexpr size_t kMuchBacklog = 16u << 20;
/// Notifications that wait for the peer's window.
inline constexpr size_t kMaxNotifyWaits = 65536;
/// Frames are collected for so long after some have left, unless they are many: a system call for each would cost more than the
/// wait. The first one after a pause leaves at once.
inline constexpr Duration kCollect = std::chrono::microseconds(10);
inline constexpr size_t kManyBytes = 64 * 1024;
/// What an operation that ends early may still take before its connection is closed.
inline constexpr Duration kGrace = std::chrono::seconds(5);
/// What a connection that is closed may take to let transfers end that have begun.
inline constexpr Duration kFarewell = std::chrono::seconds(2);
/// A peer whose host has been silent for so long is gone (endpoint/host_signs.h); looked at so often.
inline constexpr Duration kSilence = std::chrono::milliseconds(3300);
inline constexpr Duration kLookAliveEvery = std::chrono::milliseconds(250);

}  // namespace tcpx
