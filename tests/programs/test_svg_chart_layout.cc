// Where the texts of a chart stand: none on another one, on a point or outside.
#include <gtest/gtest.h>

#include "perf/svg.h"
#include "perf/svg_chart.h"
#include "tests/support/example_chart.h"

namespace tcpx {
namespace {

using testing::by_size;
using testing::drawn;
using testing::example_chart;
using testing::number;
using testing::place_of;
using testing::XmlElement;

struct Box {
  double left, top, right, bottom;
  std::string what;
};

/// The space that a text takes, guessed from above.
Box box_of(const XmlElement& text) {
  const double size = number(text, "font-size"), width = svg_text_width(text.text, size), x = number(text, "x"),
               y = number(text, "y");
  const std::string anchor = text.attribute("text-anchor");
  const double left = anchor == "end" ? x - width : anchor == "middle" ? x - width / 2 : x;
  return {left, y - 0.8 * size, left + width, y + 0.25 * size, text.attribute("class") + " '" + text.text + "'"};
}

void collect_texts(const XmlElement& element, std::vector<Box>& boxes) {
  if (element.name == "text") boxes.push_back(box_of(element));
  for (const XmlElement& child : element.children) collect_texts(child, boxes);
}

void expect_nothing_overlaps(const XmlElement& root) {
  std::vector<Box> boxes;
  collect_texts(root, boxes);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Box& a = boxes[i];
    EXPECT_TRUE(a.left >= 0 && a.top >= 0 && a.right <= number(root, "width") && a.bottom <= number(root, "height")) << a.what;
    for (size_t j = 0; j < i; ++j) {
      const Box& b = boxes[j];
      EXPECT_FALSE(a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) << a.what << " on " << b.what;
    }
    for (const XmlElement* marker : root.of_class("point")) {
      const ChartPoint at = place_of(*marker);
      EXPECT_FALSE(a.left < at.x && at.x < a.right && a.top < at.y && at.y < a.bottom) << a.what << " covers a point";
    }
  }
}

TEST(SvgChartLayout, TheReferenceLabelMovesAwayFromData) {
  const auto label_of = [](std::vector<ChartPoint> points) {
    Chart chart = {"", "", {{.series = {{"a", std::move(points)}}, .reference = ChartReference{50, "a label of some length"}}}};
    const XmlElement root = drawn(chart);
    expect_nothing_overlaps(root);
    const XmlElement& label = *root.of_class("reference-label").at(0);
    const double line = number(*root.of_class("reference").at(0), "y1");
    return label.attribute("text-anchor") + (number(label, "y") < line - 22 ? " top"
                                             : number(label, "y") < line    ? " above"
                                                                            : " below");
  };
  EXPECT_EQ(label_of({{0, 10}, {10, 20}}), "end above");
  EXPECT_EQ(label_of({{0, 100}, {10, 0}}), "end above") << "crosses the line, but not there";
  EXPECT_EQ(label_of({{0, 10}, {5, 20}, {10, 52}}), "start above");
  EXPECT_EQ(label_of({{0, 53}, {10, 53}}), "end below");
  EXPECT_EQ(label_of({{0, 0}, {0.5, 100}, {1, 0}, {9, 0}, {9.5, 100}, {10, 0}}), "end top");
}

TEST(SvgChartLayout, NoTextOverlapsATextOrAPoint) {
  expect_nothing_overlaps(drawn(example_chart()));
  Chart chart = example_chart();
  chart.title = chart.subtitle = "";
  for (int i = 0; i < 78; ++i) chart.title += "many ", chart.subtitle += "word ";
  for (ChartPanel& panel : chart.panels) panel.title = chart.title;
  for (int i = 0; i < 12; ++i) chart.panels[1].series.push_back({"a series with a long name, number " + std::to_string(i), {}});
  expect_nothing_overlaps(drawn(chart));
  for (const AxisScale scale : {AxisScale::kLinear, AxisScale::kLog2, AxisScale::kLog10}) {
    for (const double most : {1.5e-15, 1e-6, 3.0, 132.0, 1e6, 123456789.0, 1e15}) {
      ChartPanel panel = {.x = {"x", "", scale}, .y = {"y", "", scale}, .series = {{"a", {{1e-15, 1e-15}, {most, most}}}}};
      expect_nothing_overlaps(drawn({"", "", {panel, by_size(), by_size(), panel}}));
      panel.series = {{"a", {{most, most}}}};
      panel.x.labels = panel.y.labels = AxisLabels::kBytes;
      expect_nothing_overlaps(drawn({"", "", {panel}}));
    }
  }
}

TEST(SvgChartLayout, EmptyPanelsKeepTheirPlace) {
  Chart chart = example_chart();
  chart.panels.push_back({.title = "nothing", .series = {{"missing", {}}}, .reference = ChartReference{5, "x"}});
  chart.panels.push_back({.title = "not even series"});
  expect_nothing_overlaps(drawn(chart));
}

}  // namespace
}  // namespace tcpx
