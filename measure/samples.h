// Samples: values measured under the same conditions, and `measure`, the one way a benchmark takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tcpx/status.h"

namespace tcpx {

/// Summary of a set of samples, as a report keeps it. min <= median <= max, all finite.
struct Summary {
  size_t count = 0;
  double min = 0;
  double median = 0;
  double max = 0;
  bool operator==(const Summary&) const = default;
};

/// At least one finite value. The unit is the caller's.
class Samples {
 public:
  /// @return kInvalidArgument when `values` is empty or one of them is not finite.
  static Result<Samples> create(std::vector<double> values);

  size_t count() const { return sorted_.size(); }
  double min() const { return sorted_.front(); }
  /// The middle one, or half way between the two in the middle.
  double median() const;
  double max() const { return sorted_.back(); }
  Summary summary() const { return {count(), min(), median(), max()}; }
  /// In rising order, not in the order in which they were taken.
  std::span<const double> sorted() const { return sorted_; }

 private:
  explicit Samples(std::vector<double> sorted) : sorted_(std::move(sorted)) {}
  std::vector<double> sorted_;
};

/// Number of runs: first `warm_up_count` runs whose values are dropped, then `sample_count` whose values are kept.
struct MeasurePlan {
  static constexpr size_t kFewestSamples = 5;  ///< fewer say nothing about the spread
  static constexpr size_t kMostRuns = 1'000'000;
  size_t warm_up_count = 2;                  ///< 0 ... kMostRuns
  size_t sample_count = 2 * kFewestSamples;  ///< kFewestSamples ... kMostRuns
};

/// Calls `run` as `plan` says, on the calling thread, and collects what it returns.
/// @return kInvalidArgument when the plan or a value is out of range; the Status of the first run that fails, warm-up included,
/// after which there is no further run.
Result<Samples> measure(const MeasurePlan& plan, const std::function<Result<double>()>& run);

/// The rates, in GB/s (1e9 bytes), at which `bytes` were moved in each of `seconds`.
/// @return kInvalidArgument when one of them is not above zero.
Result<Samples> gigabytes_per_second(uint64_t bytes, const Samples& seconds);

}  // namespace tcpx
