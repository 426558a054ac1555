// How a loop that drives connections waits when nothing advances: spins, then yields, then sleeps for 50 us at a time, because a
// tool shares its machine with the plugin's own threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace tcpx {

class Backoff {
 public:
  /// Something advanced.
  void reset() { idle_ = 0; }
  /// Nothing did.
  void wait() {
    if (++idle_ <= kSpins) return;
    if (idle_ <= kSpins + kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr uint32_t kSpins = 256;
  static constexpr uint32_t kYields = 256;
  uint32_t idle_ = 0;
};

}  // namespace tcpx
