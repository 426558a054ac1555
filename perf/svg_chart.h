// Line charts as SVG: one file without scripts and fonts, for a page of documentation or a browser.
//
// Panels stand side by side and share one legend below them, so it never covers a point; a series that appears in several panels
// is drawn alike in each. Series differ in colour, marker and dash, so that they can be told apart without colours too. Pointing
// at a marker shows its values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/chart_axis.h"
#include "tcpx/status.h"

namespace tcpx {

struct ChartPoint {
  double x = 0;
  double y = 0;
  bool operator==(const ChartPoint&) const = default;
};

struct ChartSeries {
  std::string name;                ///< unique in its panel
  std::vector<ChartPoint> points;  ///< in any order; drawn from left to right. May be empty: the legend says so
  bool operator==(const ChartSeries&) const = default;
};

/// A horizontal line across a panel: the ceiling.
struct ChartReference {
  double y = 0;
  std::string label;
};

struct ChartPanel {
  std::string title;
  ChartAxis x;
  ChartAxis y;  ///< begins at zero when linear
  std::vector<ChartSeries> series;
  std::optional<ChartReference> reference;  ///< not drawn in a panel without points
};

struct Chart {
  static constexpr size_t kMostPanels = 4;
  static constexpr size_t kMostSeries = 16;  ///< different names, all panels together
  static constexpr size_t kMostPoints = 10'000;
  static constexpr size_t kLongestTitle = 400;  ///< characters of a title or the subtitle; they are wrapped
  static constexpr size_t kLongestLabel = 52;   ///< characters of any other text

  std::string title;
  std::string subtitle;  ///< may be ""
  std::vector<ChartPanel> panels;
};

/// The chart as an SVG document. All text is escaped.
/// @return kInvalidArgument naming the place when a text is not plain (perf/plain_text.h) or too long, there are no panels or too
/// many parts, names of one panel repeat, or a value is not finite, beyond 1e15 or, on a logarithmic axis, below 1e-15.
Result<std::string> svg_chart(const Chart& chart);

}  // namespace tcpx
