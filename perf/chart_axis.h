// The axes of a chart: which part of the number line is shown, where a value lies on it, and where the ticks are.
#pragma once

#include <string>
#include <vector>

namespace tcpx {

enum class AxisScale { kLinear, kLog2, kLog10 };
/// Ticks as 0.5, 1000 or as 64 B, 4 KiB, 1 MiB.
enum class AxisLabels { kNumbers, kBytes };

struct ChartAxis {
  std::string name;  ///< "fragment size"
  std::string unit;  ///< "GB/s"; may be ""
  AxisScale scale = AxisScale::kLinear;
  AxisLabels labels = AxisLabels::kNumbers;
};

struct AxisTick {
  double value = 0;
  std::string label;
};

/// The part of an axis that is shown.
class AxisRange {
 public:
  /// Covers `min` ... `max` (both finite, min <= max, of magnitude at most 1e15, and above 1e-15 on a logarithmic scale). Of the
  /// whole length, at least the parts `free_below` and `free_above` (0 ... 0.4) stay free of values. A linear range of nothing
  /// below zero begins at zero when `from_zero`: lengths can then be compared.
  AxisRange(AxisScale scale, double min, double max, double free_below, double free_above, bool from_zero);

  /// 0 at the low end, 1 at the high end. `value` must be above zero on a logarithmic scale.
  double position(double value) const;

  /// Round values inside the range, rising, at most one more than `most` (at least 2), and two at least when `most` is 12. Evenly
  /// spaced on the axis, except that a short kLog10 axis has 1, 2, 5 of each decade.
  std::vector<AxisTick> ticks(AxisLabels labels, size_t most) const;

 private:
  std::vector<double> tick_positions(AxisLabels labels, size_t most) const;
  AxisScale scale_;
  double low_ = 0, high_ = 1;  ///< in powers of the base when logarithmic
};

/// "0.25", "1000", "1e+12"
std::string format_tick(double value);
/// "64 B", "1448 B", "1.5 KiB", "1 MiB": the largest unit that needs no more than two digits behind the point. `bytes` >= 0.
std::string format_bytes(double bytes);
std::string format_value(AxisLabels labels, double value);

}  // namespace tcpx
