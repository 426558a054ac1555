#include "perf/svg_heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "perf/chart_axis.h"
#include "perf/plain_text.h"
#include "perf/svg.h"

namespace tcpx {
namespace {

constexpr double kMargin = 16, kLineHeight = 20, kTitleSize = 18, kTitleLineHeight = 24, kGap = 8;
constexpr double kScaleWidth = 18, kScaleHeight = 160, kLeastCellWidth = 30;
constexpr double kLeastWidth = 460;  // of the picture, for its titles
constexpr size_t kScaleSteps = 40, kScaleTicks = 6;
constexpr char kDiagonalColour[] = "#d9d9d9", kFailedColour[] = "#b3261e";
constexpr SvgStyle kFailedLine = {kFailedColour, "none", ""}, kScaleLine = {kSvgFaintInk, "none", ""};

// Checking
// ----------------------------------------------------------------------------------------------------------------------

Status wrong(const std::string& where, std::string_view what) {
  return {Code::kInvalidArgument, "draw heat map", concat(where, ": ", what)};
}

Status check_text(const std::string& where, const std::string& text, size_t longest = HeatMap::kLongestLabel) {
  if (!is_plain_text(text)) return wrong(where, "is not UTF-8, or holds control characters");
  if (display_width(text) > longest) return wrong(where, concat("has more than ", longest, " characters"));
  return Status::ok();
}

Status check_map(const HeatMap& map) {
  TCPX_RETURN_IF_ERROR(check_text("title", map.title, HeatMap::kLongestTitle));
  TCPX_RETURN_IF_ERROR(check_text("subtitle", map.subtitle, HeatMap::kLongestTitle));
  for (const std::string& text : {map.row_heading, map.column_heading, map.unit}) {
    TCPX_RETURN_IF_ERROR(check_text("heading or unit", text));
  }
  const size_t count = map.names.size();
  if (count < 2 || count > HeatMap::kMostNames) {
    return wrong("names", concat(count, " of them, allowed are 2 ... ", HeatMap::kMostNames));
  }
  if (map.cells.size() != count * count) return wrong("cells", concat(map.cells.size(), " of them for ", count, " names"));
  for (size_t i = 0; i < count; ++i) TCPX_RETURN_IF_ERROR(check_text(concat("name ", i), map.names[i]));
  for (size_t i = 0; i < map.cells.size(); ++i) {
    const HeatCell& cell = map.cells[i];
    const std::string where = concat("cell ", i / count, ", ", i % count);
    if (i / count == i % count && cell.kind != HeatCell::Kind::kNone) return wrong(where, "is on the diagonal and not empty");
    if (cell.kind == HeatCell::Kind::kValue && !(cell.value >= 0 && cell.value <= 1e15)) {
      return wrong(where, concat(cell.value, " cannot be drawn"));
    }
  }
  return Status::ok();
}

// Drawing
// ----------------------------------------------------------------------------------------------------------------------

struct Colour {
  double red, green, blue;
};
// Dark at the end and even in brightness between, so that it also reads in grey.
constexpr std::array<Colour, 5> kColours = {
    {{0xf7, 0xfc, 0xf0}, {0xcc, 0xeb, 0xc5}, {0x7b, 0xcc, 0xc4}, {0x2b, 0x8c, 0xbe}, {0x08, 0x40, 0x81}}};
// From here on the cell is so dark that white text reads better than black.
constexpr double kDarkFrom = 0.79;

/// Where the parts lie, in pixels.
struct Layout {
  double text_size, cell_width, cell_height;
  double left = 0, top = 0;  ///< of the first cell
  double size_x, size_y;     ///< of all cells together
};

Layout cell_layout(const HeatMap& map) {
  const size_t count = map.names.size();
  Layout layout{};
  // Maps of many ranks get smaller text, so that 64 of them still fit on a wide screen.
  layout.text_size = count <= 16 ? kSvgTextSize : count <= 32 ? 10 : 8;
  layout.cell_width = count <= 16 ? 1.5 * kLeastCellWidth : kLeastCellWidth;
  layout.cell_height = 2 * layout.text_size;
  for (const HeatCell& cell : map.cells) {
    if (cell.kind != HeatCell::Kind::kValue) continue;
    layout.cell_width = std::max(layout.cell_width, svg_text_width(format_measured(cell.value), layout.text_size) + 4);
  }
  layout.size_x = layout.cell_width * static_cast<double>(count);
  layout.size_y = layout.cell_height * static_cast<double>(count);
  return layout;
}

void draw_box(std::string& svg, const char* kind, double x, double y, double width, double height, const std::string& fill,
              const std::string& hint = {}) {
  svg += concat("<rect class=\"", kind, "\" x=\"", svg_px(x), "\" y=\"", svg_px(y), "\" width=\"", svg_px(width), "\" height=\"",
                svg_px(height), "\" fill=\"", fill, "\" stroke=\"", kSvgGrid, "\">");
  svg += hint.empty() ? "</rect>\n" : concat("<title>", svg_escaped(hint), "</title></rect>\n");
}

void draw_cross(std::string& svg, double x, double y, double width, double height) {
  const double inset = std::min(width, height) / 4;
  svg_line(svg, "cross", x + inset, y + inset, x + width - inset, y + height - inset, kFailedLine, 1.4);
  svg_line(svg, "cross", x + inset, y + height - inset, x + width - inset, y + inset, kFailedLine, 1.4);
}

void draw_cell(std::string& svg, const HeatMap& map, const Layout& layout, const AxisRange& range, size_t row, size_t column) {
  const HeatCell& cell = map.cells[row * map.names.size() + column];
  const double x = layout.left + layout.cell_width * static_cast<double>(column);
  const double y = layout.top + layout.cell_height * static_cast<double>(row);
  const auto box = [&](const char* kind, const std::string& fill, std::string_view value) {
    const std::string pair = concat(row, " ", map.names[row], " to ", column, " ", map.names[column], ": ");
    draw_box(svg, kind, x, y, layout.cell_width, layout.cell_height, fill, value.empty() ? "" : concat(pair, value));
  };
  if (row == column) return box("diagonal", kDiagonalColour, "");
  switch (cell.kind) {
    case HeatCell::Kind::kNone:
      return box("empty", "#ffffff", "not measured");
    case HeatCell::Kind::kFailed:
      box("failed", "#ffffff", "failed");
      return draw_cross(svg, x, y, layout.cell_width, layout.cell_height);
    case HeatCell::Kind::kValue:
      break;
  }
  const double part = range.position(cell.value);
  const std::string value = format_measured(cell.value);
  box("cell", heat_colour(part), map.unit.empty() ? value : concat(value, " ", map.unit));
  svg_text(svg, "value", x + layout.cell_width / 2, y + layout.cell_height / 2 + layout.text_size / 3, value,
           {.anchor = "middle", .colour = part >= kDarkFrom ? "#ffffff" : kSvgInk, .size = layout.text_size});
}

/// What cells without a value mean.
struct LegendEntry {
  const char* label;
  const char* fill;
  bool crossed;
};
constexpr std::array<LegendEntry, 3> kLegend = {
    {{"the same rank", kDiagonalColour, false}, {"not measured", "#ffffff", false}, {"failed", "#ffffff", true}}};

/// Of scale and legend, which stand below each other.
double side_width(const HeatMap& map, const AxisRange& range) {
  double width = svg_text_width(map.unit);
  const auto label = [&](std::string_view text) { width = std::max(width, kScaleWidth + kGap + svg_text_width(text)); };
  for (const AxisTick& tick : range.ticks(AxisLabels::kNumbers, kScaleTicks)) label(tick.label);
  for (const LegendEntry& entry : kLegend) label(entry.label);
  return width;
}

/// The colours with their values, from zero at the bottom.
void draw_scale(std::string& svg, const HeatMap& map, const AxisRange& range, double left, double top) {
  svg += "<g class=\"scale\">\n";
  svg_text(svg, "unit", left, top + kSvgTextSize, map.unit);
  const double bar_top = top + kLineHeight, step = kScaleHeight / kScaleSteps;
  for (size_t i = 0; i < kScaleSteps; ++i) {
    const double part = (static_cast<double>(i) + 0.5) / kScaleSteps;
    svg += concat("<rect class=\"shade\" x=\"", svg_px(left), "\" y=\"",
                  svg_px(bar_top + kScaleHeight - step * static_cast<double>(i + 1)), "\" width=\"", svg_px(kScaleWidth),
                  "\" height=\"", svg_px(step), "\" fill=\"", heat_colour(part), "\"/>\n");
  }
  for (const AxisTick& tick : range.ticks(AxisLabels::kNumbers, kScaleTicks)) {
    const double y = bar_top + kScaleHeight * (1 - range.position(tick.value));
    svg_line(svg, "tick", left + kScaleWidth, y, left + kScaleWidth + 4, y, kScaleLine);
    svg_text(svg, "tick-label", left + kScaleWidth + kGap, y + 4, tick.label, {.colour = kSvgFaintInk});
  }
  svg += "</g>\n";
}

void draw_legend(std::string& svg, double left, double top) {
  svg += "<g class=\"legend\">\n";
  for (const LegendEntry& entry : kLegend) {
    draw_box(svg, "swatch", left, top, kScaleWidth, kScaleWidth - 4, entry.fill);
    if (entry.crossed) draw_cross(svg, left, top, kScaleWidth, kScaleWidth - 4);
    svg_text(svg, "legend-label", left + kScaleWidth + kGap, top + kSvgTextSize - 1, entry.label);
    top += kLineHeight;
  }
  svg += "</g>\n";
}

/// @return the height used.
double draw_titles(std::string& svg, const HeatMap& map, double width) {
  double y = kMargin;
  const auto columns = [&](double size) { return static_cast<size_t>((width - 2 * kMargin) / svg_text_width("x", size)); };
  for (const std::string& line : wrap(map.title, columns(kTitleSize))) {
    svg_text(svg, "title", kMargin, y + kTitleSize - 2, line, {.size = kTitleSize, .bold = true});
    y += kTitleLineHeight;
  }
  for (const std::string& line : wrap(map.subtitle, columns(kSvgTextSize))) {
    svg_text(svg, "subtitle", kMargin, y + kSvgTextSize, line, {.colour = kSvgFaintInk});
    y += kLineHeight;
  }
  return y;
}

void draw_labels(std::string& svg, const HeatMap& map, const Layout& layout) {
  const double middle = layout.left + layout.size_x / 2;
  svg_text(svg, "column-heading", middle, layout.top - kLineHeight - 2, map.column_heading, {.anchor = "middle", .bold = true});
  svg_text(svg, "row-heading", layout.left - kGap, layout.top - kGap, map.row_heading, {.anchor = "end", .bold = true});
  for (size_t i = 0; i < map.names.size(); ++i) {
    const double at = static_cast<double>(i) + 0.5;
    svg_text(svg, "column", layout.left + layout.cell_width * at, layout.top - kGap, concat(i),
             {.anchor = "middle", .size = layout.text_size});
    svg_text(svg, "row", layout.left - kGap, layout.top + layout.cell_height * at + layout.text_size / 3,
             concat(i, " ", map.names[i]), {.anchor = "end", .size = layout.text_size});
  }
}

}  // namespace

std::string heat_colour(double part) {
  const double place = std::clamp(part, 0.0, 1.0) * (kColours.size() - 1);
  const size_t below = std::min(static_cast<size_t>(place), kColours.size() - 2);
  const double rest = place - static_cast<double>(below);
  const Colour &low = kColours[below], &high = kColours[below + 1];
  std::string text = "#";
  for (const double Colour::*channel : {&Colour::red, &Colour::green, &Colour::blue}) {
    const auto value = static_cast<unsigned>(std::lround(low.*channel + rest * (high.*channel - low.*channel)));
    for (const unsigned digit : {value >> 4, value & 15}) text.push_back("0123456789abcdef"[digit]);
  }
  return text;
}

Result<std::string> svg_heat_map(const HeatMap& map) {
  TCPX_RETURN_IF_ERROR(check_map(map));
  double largest = 0, label_width = svg_text_width(map.row_heading);
  for (const HeatCell& cell : map.cells) {
    if (cell.kind == HeatCell::Kind::kValue) largest = std::max(largest, cell.value);
  }
  // Without a value above zero the scale still has a length.
  const AxisRange range(AxisScale::kLinear, 0, largest > 0 ? largest : 1, 0, 0, true);
  Layout layout = cell_layout(map);
  for (size_t i = 0; i < map.names.size(); ++i) {
    label_width = std::max(label_width, svg_text_width(concat(i, " ", map.names[i]), layout.text_size));
  }
  layout.left = kMargin + label_width + kGap;

  const double side_left = layout.left + layout.size_x + 2 * kMargin;
  const double width = std::max(kLeastWidth, side_left + side_width(map, range) + kMargin);

  std::string body;
  layout.top = draw_titles(body, map, width) + 3 * kLineHeight;
  draw_labels(body, map, layout);
  for (size_t row = 0; row < map.names.size(); ++row) {
    for (size_t column = 0; column < map.names.size(); ++column) draw_cell(body, map, layout, range, row, column);
  }
  draw_scale(body, map, range, side_left, layout.top - kLineHeight);
  const double legend_top = layout.top + kScaleHeight + kLineHeight;
  draw_legend(body, side_left, legend_top);
  const double height = std::max(layout.top + layout.size_y, legend_top + 3 * kLineHeight) + kMargin;

  const std::string size = concat(svg_px(width), "\" height=\"", svg_px(height));
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", size, "\" viewBox=\"0 0 ", svg_px(width), " ",
                svg_px(height),
                "\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\" role=\"img\">\n<title>",
                svg_escaped(map.title), "</title>\n<rect width=\"", size, "\" fill=\"#ffffff\"/>\n", body, "</svg>\n");
}

}  // namespace tcpx
