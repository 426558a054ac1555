// One panel of a chart with its place in the drawing.
#pragma once

#include <string>
#include <vector>

#include "perf/chart_axis.h"
#include "perf/svg_chart.h"

namespace tcpx {

class PlacedPanel {
 public:
  static constexpr double kMargin = 24, kPlotWidth = 440, kPlotHeight = 290, kLineHeight = 18;

  /// Chooses ranges and ticks. `panel` has been checked, and must outlive this.
  explicit PlacedPanel(const ChartPanel& panel);

  /// Pixels, everything around the plot included.
  double width() const { return left_width_ + kPlotWidth + right_width_; }
  double title_height() const { return kLineHeight * static_cast<double>(title_.size()); }
  /// Between the upper edge of the plot and what may come below the panel.
  static constexpr double height_from_plot() { return kPlotHeight + 3 * kLineHeight; }

  /// Puts the panel's left edge at `left` and the upper edge of its plot at `plot_top`; the title stands above.
  void place(double left, double plot_top);
  /// Appends the panel to `svg`; a series is drawn in the style of its place in `names`, in which it must be.
  void draw(std::string& svg, const std::vector<std::string>& names) const;

 private:
  using Positions = std::vector<ChartPoint>;  // in pixels

  double at_x(double x) const { return left_ + kPlotWidth * x_.position(x); }
  double at_y(double y) const { return top_ + kPlotHeight * (1 - y_.position(y)); }
  bool x_labels_fit() const;
  std::string hint(const ChartSeries& series, const ChartPoint& point) const;
  void draw_ticks(std::string& svg) const;
  Positions draw_series(std::string& svg, const ChartSeries& series, size_t style_idx) const;
  void draw_reference_label(std::string& svg, const std::vector<Positions>& lines) const;

  const ChartPanel& panel_;
  std::vector<std::string> title_;  // in lines
  bool empty_ = true;
  AxisRange x_{AxisScale::kLinear, 0, 1, 0, 0, true};
  AxisRange y_{AxisScale::kLinear, 0, 1, 0, 0, true};
  std::vector<AxisTick> x_ticks_, y_ticks_;
  double left_width_ = 12, right_width_ = kMargin;  // beside the plot
  double left_ = 0, top_ = 0;                       // of the plot
};

}  // namespace tcpx
