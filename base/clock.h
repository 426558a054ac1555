// Time: one steady clock, and the deadline of every wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tcpx {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

/// Source of "now", so that state machines run under a manual clock in tests.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  static const Clock& steady();
};

namespace internal {
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};
}  // namespace internal

inline const Clock& Clock::steady() {
  static const Clock& clock = *new internal::SteadyClock;  // never destroyed: threads may still read it while the process exits
  return clock;
}

/// Converts a time span of any unit to a Duration. A span that is too long, such as milliseconds::max(), becomes the longest
/// Duration.
template <class Span>
constexpr Duration saturated(Span span) {
  constexpr Span most = std::chrono::duration_cast<Span>(Duration::max());
  return span >= most ? Duration::max() : span <= -most ? -Duration::max() : Duration(span);
}

/// `at` plus `span`, or the end of time. `at` must not be before the clock's epoch.
constexpr TimePoint later(TimePoint at, Duration span) {
  return span > TimePoint::max() - at ? TimePoint::max() : at + span;
}

/// A point in time after which a blocking call gives up with kTimeout.
class Deadline {
 public:
  /// @param span in any unit; a deadline beyond the end of time never expires
  template <class Span>
  static Deadline after(Span span) {
    return Deadline(later(std::chrono::steady_clock::now(), saturated(span)));
  }
  explicit Deadline(TimePoint at) : at_(at) {}

  TimePoint at() const { return at_; }
  bool expired() const { return std::chrono::steady_clock::now() >= at_; }
  /// For poll(2): milliseconds left, rounded up, 0 when expired.
  int poll_ms() const {
    const auto left = at_ - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return 0;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::min<int64_t>(ms, 1 << 30));
  }
  Deadline earlier(Deadline other) const { return Deadline(std::min(at_, other.at_)); }

 private:
  TimePoint at_;
};

}  // namespace tcpx
