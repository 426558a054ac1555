// SpinTime: how long a thread polls after its last work before it sleeps.
//
// Polling saves the next message the time that waking takes, but occupies a core. That is worth it while no other thread wants
// the core. When another thread does, the scheduler interrupts the polling thread, and counts that (getrusage(2), ru_nivcsw). So
// a thread that is interrupted often stops polling for a while, then tries again. While it is still interrupted as often, each
// pause is twice as long as the one before. It then takes less than 2 % of a core that others want.
//
// Many processes of one host can also fill its cores with threads that all poll for nothing, each interrupted too seldom to notice:
// with 16 peers on 32 cores, polling for a millisecond took two thirds of what moved without. So a thread polls for longer than a
// wake-up costs only while its work mostly comes within that time: 10 to 25 GB/s there.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace tcpx {

/// Number of times that the scheduler has taken the core from the calling thread.
inline uint64_t count_interruptions() {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? static_cast<uint64_t>(usage.ru_nivcsw) : 0;
}

/// Call in a loop that polls memory: the core does less, and sees sooner what another one writes.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Tries again and again for about as long as it takes to wake a thread, at first less and less often, as each try may take a cache line from
/// the thread that it waits for. @return true: `succeeds` has returned true; false: never
template <class Try>
bool poll_briefly(Try succeeds) {
  // 10 us in all, where one takes 140 cycles. Eight threads that meet at a mutex are through it soonest with 16 between two tries, of 4 to 128.
  constexpr int kPauses = 256, kMostBetween = 16;
  for (int pauses = 0, between = 1; pauses < kPauses; pauses += between, between = std::min(2 * between, kMostBetween)) {
    for (int i = 0; i < between; ++i) pause_briefly();
    if (succeeds()) return true;
  }
  return false;
}

/// Belongs to one thread, and only that thread calls `after` and `is_crowded`.
class SpinTime {
 public:
  static constexpr Duration kLookEvery = std::chrono::milliseconds(50);
  /// This many interruptions in kLookEvery show that another thread wants the core: two threads that share a core take turns of
  /// about 4 ms. Other work of the kernel interrupts a thread less than once in that time.
  static constexpr uint64_t kOften = 4;
  static constexpr Duration kShortestPause = std::chrono::milliseconds(100), kLongestPause = std::chrono::milliseconds(3200);

  /// About what it costs to wake a thread: polling for so long never costs much more than sleeping would have.
  static constexpr Duration kShort = std::chrono::microseconds(50);

  /// @param longest time to poll on a free core; zero: never poll
  /// @param interruptions counts the interruptions of the thread that calls `after`
  explicit SpinTime(Duration longest, uint64_t (*interruptions)() = count_interruptions)
      : longest_(longest), interruptions_(interruptions) {}

  Duration longest() const { return longest_; }
  /// Time to poll after work that the thread found at `found` and ended `now`. Costs some comparisons, and a system call every 50 ms.
  Duration after(TimePoint found, TimePoint now) {
    learn(found - std::exchange(ended_, now));
    if (is_crowded(now)) return Duration::zero();
    return worth_ >= kWorthIt ? longest_ : std::min(longest_, kShort);
  }
  /// True when other threads want the core of a thread that would poll. Costs as much as `after`.
  bool is_crowded(TimePoint now) {
    if (longest_ > Duration::zero() && now >= next_look_) look(now);
    return crowded_;
  }

  /// A thread that has much to do keeps a core for at least so long once it has it.
  static constexpr Duration kSlice = std::chrono::milliseconds(1);

  /// Tells that the thread gave its core away at `begin` and has it again `now`. After a slice of another thread it polls no more for a while.
  void yielded(TimePoint begin, TimePoint now) {
    if (now - begin >= kSlice) stop(now);
  }

 private:
  static constexpr int kWorthIt = 4, kMostWorth = 8;

  // A poll that finds nothing costs more than one that finds something saves.
  void learn(Duration without_work) {
    if (without_work <= kShort) return;  // the shortest poll finds it, too
    worth_ = std::clamp(worth_ + (without_work <= longest_ ? 1 : -2), 0, kMostWorth);
  }

  void look(TimePoint now) {
    const uint64_t count = interruptions_();
    // After a pause or a long sleep the count tells nothing about a time in which this thread polled.
    const bool can_tell = !crowded_ && now - looked_at_ < 2 * kLookEvery;
    crowded_ = can_tell && count - seen_ >= kOften;
    if (crowded_) {
      stop(now);
    } else {
      next_look_ = now + kLookEvery;
      if (can_tell) pause_ = kShortestPause;
    }
    seen_ = count;
    looked_at_ = now;
  }

  void stop(TimePoint now) {
    crowded_ = true;
    next_look_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }

  const Duration longest_;
  uint64_t (*const interruptions_)();
  bool crowded_ = false;
  uint64_t seen_ = 0;
  TimePoint looked_at_{}, next_look_{};
  Duration pause_ = kShortestPause;
  TimePoint ended_{};  // the last work
  int worth_ = kMostWorth;
};

}  // namespace tcpx
