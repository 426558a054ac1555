#include "measure/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"

namespace tcpx {

Result<Samples> Samples::create(std::vector<double> values) {
  if (values.empty()) return Status(Code::kInvalidArgument, "collect samples", "there are none");
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return Status(Code::kInvalidArgument, "collect samples", concat("sample ", i, " of ", values.size(), " is ", values[i]));
  }
  std::sort(values.begin(), values.end());
  return Samples(std::move(values));
}

double Samples::median() const {
  return std::midpoint(sorted_[(sorted_.size() - 1) / 2], sorted_[sorted_.size() / 2]);
}

Result<Samples> measure(const MeasurePlan& plan, const std::function<Result<double>()>& run) {
  if (plan.warm_up_count > MeasurePlan::kMostRuns || plan.sample_count < MeasurePlan::kFewestSamples ||
      plan.sample_count > MeasurePlan::kMostRuns) {
    return Status(
        Code::kInvalidArgument, "measure",
        concat("asked for ", plan.warm_up_count, " warm-up runs and ", plan.sample_count, " samples, allowed are 0 ... ",
               MeasurePlan::kMostRuns, " and ", MeasurePlan::kFewestSamples, " ... ", MeasurePlan::kMostRuns));
  }
  std::vector<double> values;
  values.reserve(plan.sample_count);
  for (size_t i = 0; i < plan.warm_up_count + plan.sample_count; ++i) {
    TCPX_ASSIGN_OR_RETURN(const double value, run());
    if (i >= plan.warm_up_count) values.push_back(value);
  }
  return Samples::create(std::move(values));
}

Result<Samples> gigabytes_per_second(uint64_t bytes, const Samples& seconds) {
  std::vector<double> rates;
  rates.reserve(seconds.count());
  for (const double taken : seconds.sorted()) {
    if (taken <= 0) return Status(Code::kInvalidArgument, "compute rate", concat("a sample is ", taken, " seconds"));
    rates.push_back(static_cast<double>(bytes) / 1e9 / taken);
  }
  return Samples::create(std::move(rates));
}

}  // namespace tcpx
