// A clock that stands still until a test advances it.
#pragma once

#include "base/clock.h"

namespace tcpx::testing {

class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{std::chrono::hours(1)};
};

}  // namespace tcpx::testing
