// Numbers that the parts of a link agree on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tcpx {

/// Notifications that wait for the peer's window.
inline constexpr size_t kMaxNotifyWaits = 65536;
/// Frames are collected for so long after some have left, unless they are many: a system call for each would cost more than the
/// wait. The first one after a pause leaves at once.
inline constexpr Duration kCollect = std::chrono::microseconds(10);
inline constexpr size_t kManyBytes = 64 * 1024;
/// Time an operation that ends early may still take before its connection is closed.
inline constexpr Duration kGrace = std::chrono::seconds(5);
/// Time a closed connection may take to let transfers end that have begun.
inline constexpr Duration kFarewell = std::chrono::seconds(2);
/// A peer whose host has been silent for so long is gone (endpoint/host_signs.h); looked at so often.
inline constexpr Duration kSilence = std::chrono::milliseconds(3300);
inline constexpr Duration kLookAliveEvery = std::chrono::milliseconds(250);

}  // namespace tcpx
