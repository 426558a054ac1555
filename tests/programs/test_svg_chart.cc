#include "perf/svg_chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "perf/svg.h"
#include "tests/support/example_chart.h"

namespace tcpx {
namespace {

using testing::by_size;
using testing::drawn;
using testing::example_chart;
using testing::number;
using testing::place_of;
using testing::XmlElement;

std::vector<ChartPoint> corners_of(const XmlElement& series) {
  std::vector<ChartPoint> corners;
  const std::string text = series.children.at(0).attribute("points");
  for (size_t at = 0; at < text.size(); at = std::min(text.find(' ', at), text.size() - 1) + 1) {
    ChartPoint corner;
    EXPECT_EQ(std::sscanf(text.c_str() + at, "%lf,%lf", &corner.x, &corner.y), 2) << text;
    corners.push_back(corner);
  }
  return corners;
}

std::vector<std::string> texts(const XmlElement& root, const std::string& kind) {
  std::vector<std::string> found;
  for (const XmlElement* element : root.of_class(kind)) found.push_back(element->text);
  return found;
}

/// Where the tick labelled `label` is: the place at which a value of that size has to be drawn.
double tick_at(const XmlElement& panel, const std::string& kind, const std::string& label) {
  for (const XmlElement* tick : panel.of_class(kind)) {
    // Labels of the y axis stand 4 pixels below their line, so that the line meets their middle.
    if (tick->text == label) return kind == "x-tick" ? number(*tick, "x") : number(*tick, "y") - 4;
  }
  ADD_FAILURE() << "no tick " << label;
  return 0;
}

TEST(SvgChart, EveryPointIsWhereItsTicksAre) {
  const XmlElement root = drawn(example_chart());
  const auto panels = root.of_class("panel");
  ASSERT_EQ(panels.size(), 2u);
  const XmlElement &size = *panels[0], &blocks = *panels[1];

  const auto kernel = size.of_class("series").at(0)->of_class("point");
  ASSERT_EQ(kernel.size(), 4u);
  const double x64 = tick_at(size, "x-tick", "64 B"), x1k = tick_at(size, "x-tick", "1 KiB"),
               x1m = tick_at(size, "x-tick", "1 MiB");
  const double y0 = tick_at(size, "y-tick", "0"), y1000 = tick_at(size, "y-tick", "1000");
  const ChartPoint expected[] = {
      {x64, y0 + (y1000 - y0) / 10}, {x1k, (y0 + y1000) / 2}, {(x64 + x1m) / 2, y0 + (y1000 - y0) * 3 / 4}, {x1m, y1000}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(place_of(*kernel[i]).x, expected[i].x, 0.02) << i;
    EXPECT_NEAR(place_of(*kernel[i]).y, expected[i].y, 0.02) << i;
  }
  EXPECT_LT(y1000, y0) << "up is more";

  const auto rising = blocks.of_class("series").at(1)->of_class("point");
  ASSERT_EQ(rising.size(), 3u);
  EXPECT_NEAR(place_of(*rising[1]).x, tick_at(blocks, "x-tick", "10"), 0.02);
  EXPECT_NEAR(place_of(*rising[1]).y, tick_at(blocks, "y-tick", "10"), 0.02);
  EXPECT_NEAR(place_of(*rising[2]).y, tick_at(blocks, "y-tick", "100"), 0.02);
}

TEST(SvgChart, LinesGoThroughTheirPoints) {
  const XmlElement root = drawn(example_chart());
  const auto all = root.of_class("series");
  ASSERT_EQ(all.size(), 4u);
  for (const XmlElement* series : all) {
    std::vector<ChartPoint> markers;
    for (const XmlElement* marker : series->of_class("point")) markers.push_back(place_of(*marker));
    EXPECT_EQ(corners_of(*series), markers);
    EXPECT_TRUE(std::is_sorted(markers.begin(), markers.end(), [](auto& a, auto& b) { return a.x < b.x; }))
        << "from left to right";
  }
}

TEST(SvgChart, PointsAndGridLieInsideThePlot) {
  const XmlElement root = drawn(example_chart());
  for (const XmlElement* panel : root.of_class("panel")) {
    const XmlElement &x_axis = *panel->of_class("x-axis").at(0), &y_axis = *panel->of_class("y-axis").at(0);
    const auto inside = [&](double x, double y) {
      return x >= number(x_axis, "x1") && x <= number(x_axis, "x2") && y >= number(y_axis, "y1") && y <= number(y_axis, "y2");
    };
    for (const XmlElement* point : panel->of_class("point")) EXPECT_TRUE(inside(place_of(*point).x, place_of(*point).y));
    for (const char* kind : {"grid", "reference"}) {
      for (const XmlElement* line : panel->of_class(kind)) {
        EXPECT_TRUE(inside(number(*line, "x1"), number(*line, "y1")) && inside(number(*line, "x2"), number(*line, "y2"))) << kind;
      }
    }
  }
}

TEST(SvgChart, TheReferenceIsALabelledLineAtItsValue) {
  Chart chart = example_chart();
  chart.panels[0].reference->y = 1000;
  const XmlElement root = drawn(chart);
  const auto lines = root.of_class("reference");
  ASSERT_EQ(lines.size(), 1u) << "only one panel has one";
  EXPECT_NEAR(number(*lines[0], "y1"), tick_at(*root.of_class("panel")[0], "y-tick", "1000"), 0.02);
  EXPECT_EQ(lines[0]->attribute("y1"), lines[0]->attribute("y2"));
  EXPECT_EQ(texts(root, "reference-label"), (std::vector<std::string>{"contiguous copy"}));
}

TEST(SvgChart, OneLegendNamesEverySeriesOnceInItsStyle) {
  const XmlElement root = drawn(example_chart());
  EXPECT_EQ(texts(root, "legend-label"), (std::vector<std::string>{"kernel", "host", "new"}));
  const auto all = root.of_class("series"), swatches = root.of_class("legend").at(0)->of_class("swatch");
  ASSERT_EQ(swatches.size(), 6u) << "a line and a marker each";
  const size_t legend_of[] = {0, 1, 2, 0};  // kernel, host | new, kernel
  for (size_t i = 0; i < 4; ++i) {
    const XmlElement &line = *swatches[2 * legend_of[i]], &marker = *swatches[2 * legend_of[i] + 1];
    EXPECT_EQ(all[i]->children[0].attribute("stroke"), line.attribute("stroke"));
    EXPECT_EQ(all[i]->children[0].attribute("stroke-dasharray"), line.attribute("stroke-dasharray"));
    EXPECT_EQ(all[i]->of_class("point").at(0)->attribute("d"), marker.attribute("d"));
    EXPECT_EQ(all[i]->of_class("point").at(0)->attribute("fill"), marker.attribute("fill"));
  }
}

TEST(SvgChart, StylesDifferWithoutColoursToo) {
  std::set<std::pair<std::string, std::string>> seen, forms;
  for (size_t i = 0; i < Chart::kMostSeries; ++i) {
    const SvgStyle style = svg_style(i), next = svg_style(i + 1);
    EXPECT_TRUE(seen.emplace(style.colour, style.marker).second) << i;
    EXPECT_TRUE(forms.emplace(style.dash, style.marker).second) << i;
    EXPECT_STRNE(style.colour, next.colour) << i;
    EXPECT_STRNE(style.dash, next.dash) << i;
    EXPECT_STRNE(style.marker, next.marker) << i;
  }
}

TEST(SvgChart, TextIsEscapedWhereverItStands) {
  const std::string text = "<b> & \"c\" 'd' µ";
  ChartPanel panel = by_size();
  panel.title = panel.x.name = panel.y.name = panel.y.unit = panel.series[0].name = panel.reference->label = text;
  const XmlElement root = drawn({text, text, {panel}});
  for (const char* kind : {"title", "subtitle", "panel-title", "x-name", "reference-label"}) {
    EXPECT_EQ(texts(root, kind), (std::vector<std::string>{text})) << kind;
  }
  EXPECT_EQ(texts(root, "y-name").at(0), text + " (" + text + ")");
  EXPECT_EQ(texts(root, "legend-label").at(0), text);
  EXPECT_EQ(root.of_class("point").at(1)->children.at(0).text, text + ": 1 KiB, 500 " + text) << "what the mouse shows";
}

TEST(SvgChart, EmptySeriesAndPanelsAreSaidToBeEmpty) {
  Chart chart = example_chart();
  chart.panels[0].series.push_back({"missing", {}});
  chart.panels.push_back({.title = "nothing", .series = {{"missing", {}}}, .reference = ChartReference{5, "x"}});
  chart.panels.push_back({.title = "not even series"});
  const XmlElement root = drawn(chart);
  EXPECT_EQ(texts(root, "legend-label"), (std::vector<std::string>{"kernel", "host", "missing (no data)", "new"}));
  EXPECT_EQ(texts(root, "no-data").size(), 2u);
  EXPECT_EQ(root.of_class("series").size(), 4u);
}

TEST(SvgChart, BadValuesAreRefusedByName) {
  using Change = void (*)(Chart&);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<const char*, Change>> changes = {
      {"panels", [](Chart& c) { c.panels.clear(); }},
      {"panels", [](Chart& c) { c.panels.resize(Chart::kMostPanels + 1); }},
      {"title", [](Chart& c) { c.title = std::string("\xff"); }},
      {"subtitle", [](Chart& c) { c.subtitle = std::string(Chart::kLongestTitle + 1, 'x'); }},
      {"panel 1: title", [](Chart& c) { c.panels[1].title = std::string("a\nb"); }},
      {"panel 1: axis", [](Chart& c) { c.panels[1].x.unit = std::string(Chart::kLongestLabel + 1, 'x'); }},
      {"label of the reference", [](Chart& c) { c.panels[0].reference->label = std::string("\x1b"); }},
      {"panel 0: reference", [](Chart& c) { c.panels[0].reference->y = NAN; }},
      {"series 'host'", [](Chart& c) { c.panels[0].series[0].name = "host"; }},
      {"no name", [](Chart& c) { c.panels[0].series[0].name.clear(); }},
      {"series 'host', x", [](Chart& c) { c.panels[0].series[1].points[0].x = 0; }},
      {"series 'host', x", [](Chart& c) { c.panels[0].series[1].points[0].x = -1; }},
      {"series 'host', y", [](Chart& c) { c.panels[0].series[1].points[0].y = NAN; }},
      {"series 'host', y", [](Chart& c) { c.panels[0].series[1].points[0].y = -kInfinity; }},
      {"series 'new', x", [](Chart& c) { c.panels[1].series[0].points[0].x = 1.1e15; }},
      {"series 'new', y", [](Chart& c) { c.panels[1].series[0].points[0].y = 0; }},
      {"points",
       [](Chart& c) {
         c.panels[0].series[0].points.resize(Chart::kMostPoints + 1, {1, 1});
       }},
      {"17 series",
       [](Chart& c) {
         for (int i = 0; i < 14; ++i) c.panels[0].series.push_back({std::to_string(i), {}});
       }},
  };
  ASSERT_TRUE(svg_chart(example_chart()).is_ok());
  for (const auto& [where, change] : changes) {
    Chart chart = example_chart();
    change(chart);
    const Status status = svg_chart(chart).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << where;
    EXPECT_NE(status.detail().find(where), std::string::npos) << status.detail();
  }
}

}  // namespace
}  // namespace tcpx
