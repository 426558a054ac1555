#include "perf/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "perf/chart_panel.h"
#include "perf/plain_text.h"
#include "perf/svg.h"

namespace tcpx {
namespace {

constexpr double kMargin = PlacedPanel::kMargin, kLineHeight = PlacedPanel::kLineHeight;
constexpr double kTitleSize = 18, kTitleLineHeight = 24, kSwatchWidth = 38, kLegendGap = 16;

// Checking
// ----------------------------------------------------------------------------------------------------------------------

Status wrong(const std::string& where, std::string_view what) {
  return {Code::kInvalidArgument, "draw chart", concat(where, ": ", what)};
}

Status check_text(const std::string& where, const std::string& text, size_t longest = Chart::kLongestLabel) {
  if (!is_plain_text(text)) return wrong(where, "is not UTF-8, or holds control characters");
  if (display_width(text) > longest) return wrong(where, concat("has more than ", longest, " characters"));
  return Status::ok();
}

Status check_value(const std::string& where, AxisScale scale, double value) {
  if (!(std::abs(value) <= 1e15)) return wrong(where, concat(value, " cannot be drawn"));
  if (scale != AxisScale::kLinear && value < 1e-15) return wrong(where, concat(value, " cannot be drawn on a logarithmic axis"));
  return Status::ok();
}

Status check_panel(const std::string& where, const ChartPanel& panel) {
  TCPX_RETURN_IF_ERROR(check_text(concat(where, ": title"), panel.title, Chart::kLongestTitle));
  for (const std::string& text : {panel.x.name, panel.x.unit, panel.y.name, panel.y.unit}) {
    TCPX_RETURN_IF_ERROR(check_text(concat(where, ": axis or unit"), text));
  }
  if (panel.reference) {
    TCPX_RETURN_IF_ERROR(check_text(concat(where, ": label of the reference"), panel.reference->label));
    TCPX_RETURN_IF_ERROR(check_value(concat(where, ": reference"), panel.y.scale, panel.reference->y));
  }
  std::set<std::string> names;
  size_t points = 0;
  for (const ChartSeries& series : panel.series) {
    TCPX_RETURN_IF_ERROR(check_text(concat(where, ": name of a series"), series.name));
    if (series.name.empty() || !names.insert(series.name).second) {
      return wrong(where, concat("series '", series.name, "' repeats or has no name"));
    }
    points += series.points.size();
    for (const ChartPoint& point : series.points) {
      const std::string here = concat(where, ", series '", series.name, "'");
      TCPX_RETURN_IF_ERROR(check_value(concat(here, ", x"), panel.x.scale, point.x));
      TCPX_RETURN_IF_ERROR(check_value(concat(here, ", y"), panel.y.scale, point.y));
    }
  }
  if (points > Chart::kMostPoints) return wrong(where, concat("more than ", Chart::kMostPoints, " points"));
  return Status::ok();
}

Status check_chart(const Chart& chart, const std::vector<std::string>& names) {
  TCPX_RETURN_IF_ERROR(check_text("title", chart.title, Chart::kLongestTitle));
  TCPX_RETURN_IF_ERROR(check_text("subtitle", chart.subtitle, Chart::kLongestTitle));
  if (chart.panels.empty() || chart.panels.size() > Chart::kMostPanels) {
    return wrong("chart", concat(chart.panels.size(), " panels, allowed are 1 ... ", Chart::kMostPanels));
  }
  if (names.size() > Chart::kMostSeries) return wrong("chart", concat(names.size(), " series, at most ", Chart::kMostSeries));
  for (size_t i = 0; i < chart.panels.size(); ++i) TCPX_RETURN_IF_ERROR(check_panel(concat("panel ", i), chart.panels[i]));
  return Status::ok();
}

// Drawing
// -----------------------------------------------------------------------------------------------------------------------

/// Names of all series, each once, in the order in which they come first: a series' style is its place here.
std::vector<std::string> series_names(const Chart& chart) {
  std::vector<std::string> names;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      if (std::find(names.begin(), names.end(), series.name) == names.end()) names.push_back(series.name);
    }
  }
  return names;
}

bool has_points(const Chart& chart, const std::string& name) {
  return std::any_of(chart.panels.begin(), chart.panels.end(), [&](const ChartPanel& panel) {
    return std::any_of(panel.series.begin(), panel.series.end(),
                       [&](const ChartSeries& series) { return series.name == name && !series.points.empty(); });
  });
}

/// Where the columns of a legend begin: as many columns, each as wide as its widest label, as fit into `width`; one at least.
std::vector<double> legend_columns(const std::vector<std::string>& labels, double width) {
  for (size_t count = labels.size();; --count) {
    std::vector<double> widths(count, 0), begins;
    for (size_t i = 0; i < labels.size(); ++i) {
      widths[i % count] = std::max(widths[i % count], kSwatchWidth + svg_text_width(labels[i]) + kLegendGap);
    }
    double end = 0;
    for (const double column : widths) {
      begins.push_back(end);
      end += column;
    }
    if (count == 1 || end - kLegendGap <= width) return begins;
  }
}

/// @return the height used.
double draw_legend(std::string& svg, const Chart& chart, const std::vector<std::string>& names, double top, double width) {
  if (names.empty()) return 0;
  std::vector<std::string> labels;
  labels.reserve(names.size());
  for (const std::string& name : names) labels.push_back(has_points(chart, name) ? name : concat(name, " (no data)"));
  const std::vector<double> columns = legend_columns(labels, width - 2 * kMargin);
  svg += "<g class=\"legend\">\n";
  for (size_t i = 0; i < labels.size(); ++i) {
    const size_t row = i / columns.size();
    const double left = kMargin + columns[i % columns.size()], middle = top + kLineHeight * (static_cast<double>(row) + 0.5);
    const SvgStyle style = svg_style(i);
    svg_line(svg, "swatch", left, middle, left + kSwatchWidth - 8, middle, style, 1.8);
    svg_marker(svg, "swatch", left + (kSwatchWidth - 8) / 2, middle, style, "");
    svg_text(svg, "legend-label", left + kSwatchWidth, middle + 4, labels[i]);
  }
  svg += "</g>\n";
  const size_t rows = (labels.size() + columns.size() - 1) / columns.size();
  return kLineHeight * static_cast<double>(rows);
}

/// @return the height used.
double draw_titles(std::string& svg, const Chart& chart, double width) {
  double y = kMargin;
  const auto columns = [&](double size) { return static_cast<size_t>((width - 2 * kMargin) / svg_text_width("x", size)); };
  for (const std::string& line : wrap(chart.title, columns(kTitleSize))) {
    svg_text(svg, "title", kMargin, y + kTitleSize - 2, line, {.size = kTitleSize, .bold = true});
    y += kTitleLineHeight;
  }
  for (const std::string& line : wrap(chart.subtitle, columns(kSvgTextSize))) {
    svg_text(svg, "subtitle", kMargin, y + kSvgTextSize, line, {.colour = kSvgFaintInk});
    y += kLineHeight;
  }
  return y;
}

}  // namespace

Result<std::string> svg_chart(const Chart& chart) {
  const std::vector<std::string> names = series_names(chart);
  TCPX_RETURN_IF_ERROR(check_chart(chart, names));
  std::vector<PlacedPanel> panels(chart.panels.begin(), chart.panels.end());
  double width = kMargin, title_height = 0;
  for (const PlacedPanel& panel : panels) {
    width += panel.width();
    title_height = std::max(title_height, panel.title_height());
  }

  std::string body;
  const double plot_top = draw_titles(body, chart, width) + title_height + 2 * kLineHeight;
  double left = kMargin;
  for (PlacedPanel& panel : panels) {
    panel.place(left, plot_top);
    panel.draw(body, names);
    left += panel.width();
  }
  double height = plot_top + PlacedPanel::height_from_plot();
  height += draw_legend(body, chart, names, height, width) + kMargin;

  const std::string size = concat(svg_px(width), "\" height=\"", svg_px(height));
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", size, "\" viewBox=\"0 0 ", svg_px(width), " ",
                svg_px(height),
                "\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\" role=\"img\">\n<title>",
                svg_escaped(chart.title), "</title>\n<rect width=\"", size, "\" fill=\"#ffffff\"/>\n", body, "</svg>\n");
}

}  // namespace tcpx
