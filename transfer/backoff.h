// Backoff: how a loop that drives connections waits when nothing advances. It spins, then yields, then sleeps, because a tool
// shares its machine with the plugin's own threads.
//
// While several chunks are in flight, each sleep is twice as long as the one before. Otherwise a loop whose chunks come slowly,
// because many peers share the network and the machine, would wake most of the time for nothing: with 64 loops that woke every
// 50 us, two cores moved 1 GB/s instead of 2.4. A loop is late by no more than it has already waited, and the chunks in flight
// keep the network busy meanwhile.
//
// With few cores, polling takes them from the very threads that the loop waits for: the scheduler gives a thread that polls and
// yields as much of a core as the I/O thread that moves the bytes. So with few cores, or when other threads want the core, the
// loop sleeps almost at once while many chunks are in flight. These take longer than the sleep, so nothing is lost.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/usable_cores.h"

namespace tcpx {

class Backoff {
 public:
  enum class Step { kSpin, kYield, kSleep };

  /// @param cores that this process can use; 0: unknown
  explicit Backoff(uint32_t cores = usable_cores()) : few_cores_(cores_are_few(cores)) {}

  /// Call when something has advanced: the next wait begins with spinning.
  void reset() {
    idle_ = 0;
    pause_ = kSleep;
  }
  /// Waits once; call when nothing has advanced.
  /// @param much_under_way several chunks are in flight, so that being late by a sleep costs nothing
  void wait(bool much_under_way = false) {
    switch (next(much_under_way)) {
      case Step::kSpin:
        return;
      case Step::kYield:
        return std::this_thread::yield();
      case Step::kSleep:
        return std::this_thread::sleep_for(pause(much_under_way));
    }
  }
  /// Counts an idle turn and returns how to wait in it. @param crowded other threads want the core (SpinTime::is_crowded)
  Step next(bool much_under_way, bool crowded = false) {
    ++idle_;
    if ((few_cores_ || crowded) && much_under_way) return idle_ <= kSpinsOnFewCores ? Step::kSpin : Step::kSleep;
    if (idle_ <= kSpins) return Step::kSpin;
    return idle_ <= kSpins + kYields ? Step::kYield : Step::kSleep;
  }

  /// Length of the sleep that `next` has asked for. Call it once for each sleep.
  std::chrono::microseconds pause(bool much_under_way) {
    if (!much_under_way) return kSleep;
    return std::exchange(pause_, std::min(2 * pause_, kLongestSleep));
  }

  /// With at least this many chunks in flight, the loop can sleep: those that remain keep the network busy meanwhile.
  static constexpr uint64_t kMuchUnderWay = 4;
  static constexpr uint32_t kSpins = 256;
  static constexpr uint32_t kYields = 256;
  static constexpr uint32_t kSpinsOnFewCores = 1;
  static constexpr std::chrono::microseconds kSleep{50};
  static constexpr std::chrono::microseconds kLongestSleep{6400};

 private:
  const bool few_cores_;
  uint32_t idle_ = 0;
  std::chrono::microseconds pause_ = kSleep;
};

}  // namespace tcpx
