// SpinTime: how long a thread polls after its last work before it sleeps.
//
// To poll spares the next message the time that waking takes, and costs a core. That is worth it while nobody else wants the core:
// where somebody does, the scheduler interrupts the thread, and counts that (getrusage(2), ru_nivcsw). So a thread that is
// interrupted often does not poll for a while, and tries again; while it is interrupted as often, each pause is twice as long as
// the one before. It then takes less than 2 % of a core that others want.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace tcpx {

/// The times that the scheduler has taken the core from the calling thread so far.
inline uint64_t count_interruptions() {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? static_cast<uint64_t>(usage.ru_nivcsw) : 0;
}

/// Of one thread, which alone calls `at` and `is_crowded`.
class SpinTime {
 public:
  static constexpr Duration kLookEvery = std::chrono::milliseconds(50);
  /// In that time, when somebody else wants the core: two threads that share one take turns of about 4 ms. What the kernel does
  /// besides interrupts a thread less than once.
  static constexpr uint64_t kOften = 4;
  static constexpr Duration kShortestPause = std::chrono::milliseconds(100), kLongestPause = std::chrono::milliseconds(3200);

  /// @param longest on a free core; zero: it never polls
  /// @param interruptions so far, of the thread that calls `at`
  explicit SpinTime(Duration longest, uint64_t (*interruptions)() = count_interruptions)
      : longest_(longest), interruptions_(interruptions) {}

  Duration longest() const { return longest_; }
  /// As things are now. A comparison, and a system call in 50 ms.
  Duration at(TimePoint now) { return is_crowded(now) ? Duration::zero() : longest_; }
  /// Others want the core, of a thread that would poll. As costly as `at`.
  bool is_crowded(TimePoint now) {
    if (longest_ > Duration::zero() && now >= next_look_) look(now);
    return crowded_;
  }

 private:
  void look(TimePoint now) {
    const uint64_t count = interruptions_();
    // After a pause, or a long sleep, nothing is known of how it is when this thread polls.
    const bool can_tell = !crowded_ && now - looked_at_ < 2 * kLookEvery;
    crowded_ = can_tell && count - seen_ >= kOften;
    if (crowded_) {
      next_look_ = now + pause_;
      pause_ = std::min(2 * pause_, kLongestPause);
    } else {
      next_look_ = now + kLookEvery;
      if (can_tell) pause_ = kShortestPause;
    }
    seen_ = count;
    looked_at_ = now;
  }

  const Duration longest_;
  uint64_t (*const interruptions_)();
  bool crowded_ = false;
  uint64_t seen_ = 0;
  TimePoint looked_at_{}, next_look_{};
  Duration pause_ = kShortestPause;
};

}  // namespace tcpx
