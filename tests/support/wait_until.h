// Waiting in tests: a condition with a deadline, no sleep.
#pragma once

#include <sched.h>

#include <chrono>

namespace tcpx::testing {

/// Longer than any healthy operation takes, even under a sanitizer on a busy machine: reaching it means a hang.
inline constexpr std::chrono::seconds kTestDeadline{20};

template <class Condition>
bool wait_until(Condition condition, std::chrono::nanoseconds limit = kTestDeadline) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    ::sched_yield();
  }
  return true;
}

}  // namespace tcpx::testing
