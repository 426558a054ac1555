// Waiting of a loop that drives connections when nothing advances: spins, then yields, then sleeps, because a tool shares its
// machine with the plugin's own threads.
//
// While several chunks are under way every sleep is twice as long as the one before, so that a loop whose chunks are slow to come
// (many peers share the network, and the machine) is not awake most of the time for nothing: 64 of them that woke every 50 us
// made two cores move 1 GB/s instead of 2.4. It is late by no more than it has already waited, and what is under way lasts
// meanwhile.
//
// With few cores, polling takes them from the very threads that are waited for: the scheduler gives a thread that polls and
// yields as much of a core as the I/O thread that moves the bytes. So there, and where others want the core, the loop sleeps almost
// at once while much is under way: transfers under way last longer than the sleep, and nothing is lost.
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

  /// @param cores to run on; 0: unknown
  explicit Backoff(uint32_t cores = usable_cores()) : few_cores_(cores_are_few(cores)) {}

  /// Something advanced.
  void reset() {
    idle_ = 0;
    pause_ = kSleep;
  }
  /// Nothing did. @param much_under_way several chunks are in flight, so that being late by a sleep costs nothing.
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
  /// Counts the turn and says what to do in it. @param crowded others want the core (SpinTime::is_crowded)
  Step next(bool much_under_way, bool crowded = false) {
    ++idle_;
    if ((few_cores_ || crowded) && much_under_way) return idle_ <= kSpinsOnFewCores ? Step::kSpin : Step::kSleep;
    if (idle_ <= kSpins) return Step::kSpin;
    return idle_ <= kSpins + kYields ? Step::kYield : Step::kSleep;
  }

  /// Length of the sleep that `next` has asked for. To be called once for each.
  std::chrono::microseconds pause(bool much_under_way) {
    if (!much_under_way) return kSleep;
    return std::exchange(pause_, std::min(2 * pause_, kLongestSleep));
  }

  /// Fewer than a caller and an I/O thread at either end of a loopback take.
  static bool cores_are_few(uint32_t cores) { return cores > 0 && cores < 4; }

  /// From so many chunks in flight on, those that are left last while the loop sleeps.
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
