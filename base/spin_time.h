// SpinTime: how long a thread polls after its last work before it sleeps.
//
// Polling saves the next message the time that waking takes, but occupies a core. That is worth it while no other thread wants
// the core. When another thread does, the scheduler interrupts the polling thread, and counts that (getrusage(2), ru_nivcsw). So
// a thread that is interrupted often stops polling for a while, then tries again. While it is still interrupted as often, each
// pause is twice as long as the one before. It then takes less than 2 % of a core that others want.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace tcpx {

/// Number of times that the scheduler has taken the core from the calling thread.
inline uint64_t count_interruptions() {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? static_cast<uint64_t>(usage.ru_nivcsw) : 0;
}

/// Belongs to one thread, and only that thread calls `at` and `is_crowded`.
class SpinTime {
 public:
  static constexpr Duration kLookEvery = std::chrono::milliseconds(50);
  /// This many interruptions in kLookEvery show that another thread wants the core: two threads that share a core take turns of
  /// about 4 ms. Other work of the kernel interrupts a thread less than once in that time.
  static constexpr uint64_t kOften = 4;
  static constexpr Duration kShortestPause = std::chrono::milliseconds(100), kLongestPause = std::chrono::milliseconds(3200);

  /// @param longest time to poll on a free core; zero: never poll
  /// @param interruptions counts the interruptions of the thread that calls `at`
  explicit SpinTime(Duration longest, uint64_t (*interruptions)() = count_interruptions)
      : longest_(longest), interruptions_(interruptions) {}

  Duration longest() const { return longest_; }
  /// Time to poll as things are now. Costs a comparison, and a system call every 50 ms.
  Duration at(TimePoint now) { return is_crowded(now) ? Duration::zero() : longest_; }
  /// True when other threads want the core of a thread that would poll. Costs as much as `at`.
  bool is_crowded(TimePoint now) {
    if (longest_ > Duration::zero() && now >= next_look_) look(now);
    return crowded_;
  }

 private:
  void look(TimePoint now) {
    const uint64_t count = interruptions_();
    // After a pause or a long sleep the count tells nothing about a time in which this thread polled.
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
