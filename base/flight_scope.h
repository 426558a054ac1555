// FlightScope: a thread's report of what it has in flight. It is for the one moment when no ordinary call can ask for the report:
// foreign code exits the process from within a call, and the work in flight should be reported a last time.
//
// Code that drives transfers opens a scope around each step. That costs two stores and a load; the text is composed only on
// request. What is in flight belongs to its thread, so no other thread reads it: the scope's own thread answers when it leaves
// the scope.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"

namespace tcpx {

class FlightScope {
 public:
  /// @param tell called on this thread while the scope lives: `std::string tell()`, empty when nothing is in flight
  template <class Tell>
  explicit FlightScope(const Tell& tell)
      : teller_(&tell), call_([](const void* teller) { return (*static_cast<const Tell*>(teller))(); }), outer_(innermost_) {
    innermost_ = this;
  }
  ~FlightScope() {
    innermost_ = outer_;
    if (asked_.load(std::memory_order_relaxed)) answer();
  }
  FlightScope(const FlightScope&) = delete;
  FlightScope& operator=(const FlightScope&) = delete;

  /// The report of this thread's innermost scope; empty without one.
  static std::string of_this_thread() { return innermost_ != nullptr ? innermost_->call_(innermost_->teller_) : std::string(); }
  /// The report of the first thread that leaves a scope with something in flight; empty when none does before the deadline.
  static std::string of_another_thread(Deadline deadline);

 private:
  void answer() const noexcept;

  // Constant-initialised, so that reading it is a plain load.
  static inline constinit thread_local const FlightScope* innermost_ = nullptr;
  static inline std::atomic<bool> asked_ = false;

  const void* teller_;
  std::string (*call_)(const void* teller);
  const FlightScope* outer_;
};

}  // namespace tcpx
