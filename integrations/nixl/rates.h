// Rates: what transfers with each agent have taken lately, and what the next one will take by that.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "integrations/nixl/nixl_abi.h"

namespace tcpx::nixl {

/// Reads and writes are told apart. A short transfer teaches how long any one takes, a long one how much longer a byte makes it;
/// of both the smoothed mean and deviation are kept, as TCP keeps those of its round trip (RFC 6298). Any thread.
class Rates {
 public:
  static constexpr uint64_t kShortBytes = 64 << 10;  ///< and less: short

  struct Estimate {
    std::chrono::microseconds duration, error;
  };

  /// Learns from a transfer that ended well. @param took from the post to the poll that said so
  void add(const std::string& agent, abi::XferOp operation, uint64_t bytes, Duration took);
  /// @return nullopt: no transfer of its kind, short or long, has ended yet
  std::optional<Estimate> estimate(const std::string& agent, abi::XferOp operation, uint64_t bytes) const;
  void forget(const std::string& agent);

 private:
  /// Of nanoseconds.
  struct Smoothed {
    double mean = 0, deviation = 0;
    bool is_known = false;
    void add(double value);
  };
  struct Measured {
    Smoothed latency, per_byte;
  };
  static size_t index_of(abi::XferOp operation) { return operation == abi::XferOp::kWrite ? 1 : 0; }

  mutable Mutex mutex_;
  std::map<std::string, std::array<Measured, 2>> agents_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx::nixl
