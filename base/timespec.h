// Durations in the form that system calls take.
#pragma once

#include <chrono>
#include <ctime>

#include "base/clock.h"

namespace tcpx {

/// Converts a time span. For a point in time of CLOCK_MONOTONIC, pass the time since the epoch of Clock::steady().
/// @param span not negative
inline timespec to_timespec(Duration span) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(span);
  return {.tv_sec = seconds.count(), .tv_nsec = static_cast<long>((span - seconds).count())};
}

}  // namespace tcpx
