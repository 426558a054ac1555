#include "perf/chart_panel.h"

#include <algorithm>

#include "base/text.h"
#include "perf/plain_text.h"
#include "perf/svg.h"

namespace tcpx {
namespace {

constexpr double kTitleSize = 14;
constexpr double kLabelHeight = 22, kReferenceRoom = kLabelHeight + 4,
                 kRoom = 12;  // pixels free of data at the edges of the plot
constexpr SvgStyle kGridLine = {kSvgGrid, "none", ""}, kAxisLine = {kSvgFaintInk, "none", ""},
                   kReferenceLine = {kSvgFaintInk, "5 4", ""};

std::string with_unit(const ChartAxis& axis) {
  if (axis.unit.empty()) return axis.name;
  return axis.name.empty() ? axis.unit : concat(axis.name, " (", axis.unit, ")");
}

/// True when the polyline comes into the rectangle between x1 and x2, y1 and y2; a single point counts as a line.
bool enters(const std::vector<ChartPoint>& line, double x1, double x2, double y1, double y2) {
  for (size_t i = 0; i < line.size(); ++i) {
    const ChartPoint a = line[i], b = line[std::min(i + 1, line.size() - 1)];
    if (b.x < x1 || a.x > x2) continue;
    double from = a.y, to = b.y;
    if (b.x > a.x) {
      const double slope = (b.y - a.y) / (b.x - a.x);
      from = a.y + slope * (std::max(a.x, x1) - a.x);
      to = a.y + slope * (std::min(b.x, x2) - a.x);
    }
    if (std::max(from, to) >= y1 && std::min(from, to) <= y2) return true;
  }
  return false;
}

}  // namespace

PlacedPanel::PlacedPanel(const ChartPanel& panel)
    : panel_(panel), title_(wrap(panel.title, static_cast<size_t>(kPlotWidth / svg_text_width("x", kTitleSize)))) {
  std::vector<double> xs, ys;
  for (const ChartSeries& series : panel.series) {
    for (const ChartPoint& point : series.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  empty_ = xs.empty();
  if (empty_) return;
  if (panel.reference) ys.push_back(panel.reference->y);
  const auto [x_min, x_max] = std::minmax_element(xs.begin(), xs.end());
  const auto [y_min, y_max] = std::minmax_element(ys.begin(), ys.end());
  const double above = panel.reference ? kReferenceRoom : kRoom;
  x_ = AxisRange(panel.x.scale, *x_min, *x_max, kRoom / kPlotWidth, kRoom / kPlotWidth, false);
  y_ = AxisRange(panel.y.scale, *y_min, *y_max, kRoom / kPlotHeight, above / kPlotHeight, true);
  y_ticks_ = y_.ticks(panel.y.labels, 7);
  for (const AxisTick& tick : y_ticks_) left_width_ = std::max(left_width_, svg_text_width(tick.label) + 12);
  for (size_t most = 12; most >= 2; --most) {
    x_ticks_ = x_.ticks(panel.x.labels, most);
    if (x_labels_fit()) break;
  }
  // The outer labels may be wider than what is beside the plot anyway.
  for (const AxisTick& tick : x_ticks_) {
    const double middle = kPlotWidth * x_.position(tick.value), half = svg_text_width(tick.label) / 2;
    left_width_ = std::max(left_width_, half - middle);
    right_width_ = std::max(right_width_, middle + half - kPlotWidth + kSvgCharWidth);
  }
}

bool PlacedPanel::x_labels_fit() const {
  for (size_t i = 1; i < x_ticks_.size(); ++i) {
    const AxisTick &before = x_ticks_[i - 1], &tick = x_ticks_[i];
    const double needed = (svg_text_width(before.label) + svg_text_width(tick.label)) / 2 + kSvgCharWidth;
    if (kPlotWidth * (x_.position(tick.value) - x_.position(before.value)) < needed) return false;
  }
  return true;
}

void PlacedPanel::place(double left, double plot_top) {
  left_ = left + left_width_;
  top_ = plot_top;
}

void PlacedPanel::draw(std::string& svg, const std::vector<std::string>& names) const {
  const double right = left_ + kPlotWidth, bottom = top_ + kPlotHeight, middle = left_ + kPlotWidth / 2;
  const SvgTextLook centred = {.anchor = "middle", .colour = kSvgFaintInk};
  svg += "<g class=\"panel\">\n";
  for (size_t i = 0; i < title_.size(); ++i) {
    const double above = kLineHeight * static_cast<double>(title_.size() - i - 1) + 30;
    svg_text(svg, "panel-title", left_, top_ - above, title_[i], {.size = kTitleSize, .bold = true});
  }
  svg_text(svg, "y-name", left_, top_ - 9, with_unit(panel_.y), {.colour = kSvgFaintInk});
  svg_text(svg, "x-name", middle, bottom + 2 * kLineHeight + 2, with_unit(panel_.x), centred);
  if (empty_) svg_text(svg, "no-data", middle, top_ + kPlotHeight / 2, "no data", centred);
  draw_ticks(svg);
  svg_line(svg, "x-axis", left_, bottom, right, bottom, kAxisLine);
  svg_line(svg, "y-axis", left_, top_, left_, bottom, kAxisLine);
  const bool with_reference = panel_.reference && !empty_;
  if (with_reference) {
    const double y = at_y(panel_.reference->y);
    svg_line(svg, "reference", left_, y, right, y, kReferenceLine, 1.4);
  }
  std::vector<Positions> lines;
  for (const ChartSeries& series : panel_.series) {
    if (series.points.empty()) continue;
    lines.push_back(
        draw_series(svg, series, static_cast<size_t>(std::find(names.begin(), names.end(), series.name) - names.begin())));
  }
  if (with_reference) draw_reference_label(svg, lines);
  svg += "</g>\n";
}

void PlacedPanel::draw_ticks(std::string& svg) const {
  for (const AxisTick& tick : y_ticks_) {
    const double y = at_y(tick.value);
    svg_line(svg, "grid", left_, y, left_ + kPlotWidth, y, kGridLine);
    svg_text(svg, "y-tick", left_ - 7, y + 4, tick.label, {.anchor = "end"});
  }
  for (const AxisTick& tick : x_ticks_) {
    const double x = at_x(tick.value);
    svg_line(svg, "grid", x, top_, x, top_ + kPlotHeight, kGridLine);
    svg_text(svg, "x-tick", x, top_ + kPlotHeight + kLineHeight, tick.label, {.anchor = "middle"});
  }
}

std::string PlacedPanel::hint(const ChartSeries& series, const ChartPoint& point) const {
  const std::string y = panel_.y.labels == AxisLabels::kBytes ? format_bytes(point.y) : format_measured(point.y);
  return concat(series.name, ": ", format_value(panel_.x.labels, point.x), ", ", y, panel_.y.unit.empty() ? "" : " ",
                panel_.y.unit);
}

PlacedPanel::Positions PlacedPanel::draw_series(std::string& svg, const ChartSeries& series, size_t style_idx) const {
  std::vector<ChartPoint> points = series.points;
  std::stable_sort(points.begin(), points.end(), [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  const SvgStyle style = svg_style(style_idx);
  Positions line;
  std::string corners;
  for (const ChartPoint& point : points) {
    line.push_back({at_x(point.x), at_y(point.y)});
    corners += concat(corners.empty() ? "" : " ", svg_px(line.back().x), ",", svg_px(line.back().y));
  }
  svg += concat("<g class=\"series\">\n<polyline points=\"", corners, "\" fill=\"none\" stroke=\"", style.colour,
                "\" stroke-width=\"1.8\" stroke-linejoin=\"round\" stroke-dasharray=\"", style.dash, "\"/>\n");
  for (size_t i = 0; i < points.size(); ++i) svg_marker(svg, "point", line[i].x, line[i].y, style, hint(series, points[i]));
  svg += "</g>\n";
  return line;
}

void PlacedPanel::draw_reference_label(std::string& svg, const std::vector<Positions>& lines) const {
  const std::string& label = panel_.reference->label;
  const double y = at_y(panel_.reference->y), right = left_ + kPlotWidth, width = svg_text_width(label) + 12;
  struct Place {
    bool at_right;
    double top;  // of a box that must be free of data
  };
  // At an end of the line, above it if possible; else in the room above everything.
  Place place = {true, top_};
  for (const Place candidate : {Place{true, y - kLabelHeight}, {false, y - kLabelHeight}, {true, y}, {false, y}}) {
    const double x1 = candidate.at_right ? right - width : left_, y1 = candidate.top, y2 = y1 + kLabelHeight;
    const auto crosses = [&](const Positions& line) { return enters(line, x1, x1 + width, y1, y2); };
    if (y2 > top_ + kPlotHeight || std::any_of(lines.begin(), lines.end(), crosses)) continue;
    place = candidate;
    break;
  }
  svg_text(svg, "reference-label", place.at_right ? right - 6 : left_ + 6, place.top + kLabelHeight - 7, label,
           {.anchor = place.at_right ? "end" : "start", .colour = kSvgFaintInk});
}

}  // namespace tcpx
