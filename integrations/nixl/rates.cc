#include "integrations/nixl/rates.h"

#include <algorithm>
#include <cmath>

namespace tcpx::nixl {

void Rates::Smoothed::add(double value) {
  if (!is_known) {
    *this = {.mean = value, .deviation = value / 2, .is_known = true};
    return;
  }
  deviation += (std::abs(value - mean) - deviation) / 4;
  mean += (value - mean) / 8;
}

void Rates::add(const std::string& agent, abi::XferOp operation, uint64_t bytes, Duration took) {
  const auto nanoseconds = static_cast<double>(took.count());
  MutexLock lock(mutex_);
  Measured& measured = agents_[agent][index_of(operation)];
  if (bytes <= kShortBytes) {
    measured.latency.add(nanoseconds);
  } else {
    measured.per_byte.add(std::max(nanoseconds - measured.latency.mean, 0.0) / static_cast<double>(bytes));
  }
}

std::optional<Rates::Estimate> Rates::estimate(const std::string& agent, abi::XferOp operation, uint64_t bytes) const {
  MutexLock lock(mutex_);
  const auto found = agents_.find(agent);
  if (found == agents_.end()) return std::nullopt;
  const Measured& measured = found->second[index_of(operation)];
  const bool is_long = bytes > kShortBytes;
  if (!(is_long ? measured.per_byte : measured.latency).is_known) return std::nullopt;
  const double beyond = is_long ? static_cast<double>(bytes) : 0;
  const auto microseconds = [](double nanoseconds) {
    return std::chrono::microseconds(static_cast<int64_t>(std::ceil(std::min(nanoseconds / 1e3, 1e15))));
  };
  return Estimate{.duration = microseconds(measured.latency.mean + beyond * measured.per_byte.mean),
                  .error = microseconds(measured.latency.deviation + beyond * measured.per_byte.deviation)};
}

void Rates::forget(const std::string& agent) {
  MutexLock lock(mutex_);
  agents_.erase(agent);
}

}  // namespace tcpx::nixl
