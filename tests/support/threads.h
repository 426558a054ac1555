// Threads of a test: some that repeat a step in the background, or some that run once, all at the same time.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

/// Runs `function` in a thread of its own. @return its result, in a future
template <class F>
auto in_thread(F function) {
  return std::async(std::launch::async, std::move(function));
}

/// Threads that repeat `step` until `stop`, which the destructor calls.
class Repeating {
 public:
  template <class Step>
  Repeating(size_t count, Step step) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, step]() mutable {
        for (; !stop_; ::sched_yield()) step();
      });
    }
  }
  ~Repeating() { stop(); }
  Repeating(const Repeating&) = delete;
  Repeating& operator=(const Repeating&) = delete;

  /// Returns when all have ended.
  void stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

/// Expires long before kTestDeadline: a test that repeats a race goes on for so many rounds or until then, so that it ends in time
/// on a machine that is busy, too.
inline Deadline long_enough() {
  return Deadline::after(kTestDeadline / 2);
}

/// Runs `body(0)` to `body(count - 1)`, each on a thread of its own. Returns when all have ended.
template <class Body>
void run_together(size_t count, Body body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tcpx::testing
