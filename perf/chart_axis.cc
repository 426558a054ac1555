#include "perf/chart_axis.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "base/text.h"
#include "perf/plain_text.h"

namespace tcpx {
namespace {

constexpr double kShortDecades = 1.5;  // up to here a logarithmic axis shows 1, 2, 5 of each decade
constexpr size_t kPlenty = 12;         // ticks

double to_scale(AxisScale scale, double value) {
  switch (scale) {
    case AxisScale::kLinear:
      return value;
    case AxisScale::kLog2:
      return std::log2(value);
    case AxisScale::kLog10:
      return std::log10(value);
  }
  return value;
}

double from_scale(AxisScale scale, double position) {
  switch (scale) {
    case AxisScale::kLinear:
      return position;
    case AxisScale::kLog2:
      return std::exp2(position);
    case AxisScale::kLog10:
      return std::pow(10.0, position);
  }
  return position;
}

/// The smallest of 1, 2, 5, 10, 20 ... that is not below `step`; for bytes the smallest power of two.
double round_step(AxisLabels labels, double step) {
  if (labels == AxisLabels::kBytes) return std::exp2(std::ceil(std::log2(step)));
  const double decade = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= step) return factor * decade;
  }
  return 10 * decade;
}

}  // namespace

AxisRange::AxisRange(AxisScale scale, double min, double max, double free_below, double free_above, bool from_zero)
    : scale_(scale) {
  assert(min <= max && free_below + free_above < 1);
  const bool at_zero = scale == AxisScale::kLinear && from_zero && min >= 0;
  const double low = at_zero ? 0 : to_scale(scale, min), high = to_scale(scale, max);
  // Values that are all but equal get room to both sides: a tenth of them, or one power, or one.
  const bool flat = high - low <= 1e-9 * std::max(std::abs(low), std::abs(high));
  const double room = !flat ? 0 : scale == AxisScale::kLinear && high != 0 ? std::abs(high) / 10 : 1;
  const double begin = at_zero ? 0 : low - room, end = high + room;
  const double unit = (end - begin) / (1 - free_above - (at_zero ? 0 : free_below));
  low_ = at_zero ? 0 : begin - free_below * unit;
  high_ = end + free_above * unit;
  // A logarithmic axis without two ticks cannot be read.
  if (scale_ != AxisScale::kLinear && tick_positions(AxisLabels::kNumbers, kPlenty).size() < 2) {
    low_ = std::floor(low_);
    high_ = std::ceil(high_);
  }
}

double AxisRange::position(double value) const {
  return (to_scale(scale_, value) - low_) / (high_ - low_);
}

std::vector<double> AxisRange::tick_positions(AxisLabels labels, size_t most) const {
  std::vector<double> positions;
  const double span = high_ - low_;
  if (scale_ == AxisScale::kLog10 && span < kShortDecades) {
    for (int decade = static_cast<int>(std::floor(low_)); decade <= high_; ++decade) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double position = decade + std::log10(factor);
        if (position >= low_ && position <= high_) positions.push_back(position);
      }
    }
    if (positions.size() <= most) return positions;
    positions.clear();
  }
  const double finest = span / static_cast<double>(most);
  const double step = scale_ == AxisScale::kLinear ? round_step(labels, finest) : std::max(1.0, std::ceil(finest));
  // Counted, not added up: a sum of steps drifts off the round values.
  const auto last = static_cast<int64_t>(std::floor(high_ / step));
  for (auto i = static_cast<int64_t>(std::ceil(low_ / step)); i <= last; ++i) positions.push_back(static_cast<double>(i) * step);
  return positions;
}

std::vector<AxisTick> AxisRange::ticks(AxisLabels labels, size_t most) const {
  assert(most >= 2);
  std::vector<AxisTick> ticks;
  for (const double position : tick_positions(labels, most)) {
    const double value = from_scale(scale_, position);
    ticks.push_back({value, format_value(labels, value)});
  }
  return ticks;
}

std::string format_tick(double value) {
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-4 || size >= 1e9)) {
    std::array<char, 40> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general, 6).ptr;
    return {digits.data(), end};
  }
  std::string text = format_fixed(value, 9);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t best = 0;
  for (size_t i = 1; i < kUnits.size(); ++i) {
    const double in_unit = std::ldexp(bytes, -10 * static_cast<int>(i));
    if (in_unit >= 1 && in_unit * 100 == std::floor(in_unit * 100)) best = i;
  }
  return concat(format_tick(std::ldexp(bytes, -10 * static_cast<int>(best))), " ", kUnits[best]);
}

std::string format_value(AxisLabels labels, double value) {
  return labels == AxisLabels::kBytes ? format_bytes(value) : format_tick(value);
}

}  // namespace tcpx
