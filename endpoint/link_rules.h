// Numbers that the parts of a link agree on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tcpx {

/// Inline payload that may be on its way to a peer which has not taken it in, for sends and for all else. Part of the protocol.
inline constexpr uint64_t kInlineWindowBytes = 1u << 20;
/// What a message takes of it: its bytes, and something for being there at all.
constexpr uint64_t window_cost(uint64_t bytes) {
  return bytes + 64;
}
/// A short send that has waited so long for the window goes through the pipeline.
inline constexpr Duration kWindowPatience = std::chrono::milliseconds(1);
/// Sends of a peer that no receive has met; writes and reads of a peer that are under way.
inline constexpr size_t kMaxArrivals = 1u << 20;
inline constexpr size_t kMaxServed = 1u << 20;
/// Control bytes that wait for the socket; beyond, nothing new is offered to the peer. Well below kMaxBacklogBytes.
inline constexpr size_t kMuchBacklog = 16u << 20;
/// Notifications that wait for the peer's window.
inline constexpr size_t kMaxNotifyWaits = 65536;
/// Frames are collected for so long after some have left, unless they are many: a system call for each would cost more than the
/// wait. The first one after a pause leaves at once.
inline constexpr Duration kCollect = std::chrono::microseconds(10);
inline constexpr size_t kManyBytes = 64 * 1024;
/// Ranges of the peer's sends that no receive has met.
inline constexpr size_t kMaxArrivedRanges = 1u << 22;
/// What an operation that ends early may still take before its connection is closed.
inline constexpr Duration kGrace = std::chrono::seconds(5);
/// What a connection that is closed may take to let transfers end that have begun.
inline constexpr Duration kFarewell = std::chrono::seconds(2);
/// A peer whose host has been silent for so long is gone (endpoint/host_signs.h); looked at so often.
inline constexpr Duration kSilence = std::chrono::milliseconds(3300);
inline constexpr Duration kLookAliveEvery = std::chrono::milliseconds(250);

}  // namespace tcpx
