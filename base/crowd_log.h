// CrowdLog: warnings that strangers at a port can cause. Their number is bounded, so that a crowd there does not fill the disk.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace tcpx {

/// Logs kBurst warnings at once, then one per second, which says how many were left out before it. One thread at a time.
class CrowdLog {
 public:
  static constexpr int64_t kBurst = 32;

  template <class... Parts>
  void warn(TimePoint now, const Parts&... parts) {
    const int64_t seconds = std::chrono::floor<std::chrono::seconds>(now - counted_at_).count();
    lines_ = std::min(kBurst, lines_ + seconds);
    counted_at_ += std::chrono::seconds(seconds);
    if (lines_ == 0) {
      ++left_out_;
      return;
    }
    --lines_;
    const uint64_t left_out = std::exchange(left_out_, 0);
    if (left_out == 0) return log(LogLevel::kWarning, parts...);
    log(LogLevel::kWarning, parts..., " (before it ", left_out, " warnings were left out)");
  }

 private:
  int64_t lines_ = kBurst;  // that may be logged at once
  TimePoint counted_at_;
  uint64_t left_out_ = 0;
};

}  // namespace tcpx
