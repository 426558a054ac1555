// A chart with every kind of part, and the SVG that is made of charts, for their tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "perf/svg_chart.h"
#include "tests/support/xml_reader.h"

namespace tcpx::testing {

inline ChartPanel by_size() {
  return {.title = "by size",
          .x = {"fragment size", "", AxisScale::kLog2, AxisLabels::kBytes},
          .y = {"throughput", "GB/s"},
          .series = {{"kernel", {{1024, 500}, {64, 100}, {1 << 20, 1000}, {8192, 750}}}, {"host", {{64, 0}, {1 << 20, 40}}}},
          .reference = ChartReference{1200, "contiguous copy"}};
}

inline ChartPanel by_blocks() {
  return {.title = "by blocks",
          .x = {"blocks", "", AxisScale::kLinear},
          .y = {"", "µs", AxisScale::kLog10},
          .series = {{"new", {{0, 1}}}, {"kernel", {{0, 1}, {10, 10}, {20, 100}}}}};
}

inline Chart example_chart() {
  return {"title", "subtitle", {by_size(), by_blocks()}};
}

/// The SVG of `chart`, which must be a chart, as elements.
inline XmlElement drawn(const Chart& chart) {
  const Result<std::string> svg = svg_chart(chart);
  EXPECT_TRUE(svg.is_ok()) << svg.status().to_string();
  const Result<XmlElement> root = parse_xml(*svg);
  EXPECT_TRUE(root.is_ok()) << root.status().to_string();
  EXPECT_EQ(root->name, "svg");
  for (const char* word : {"nan", "inf", "NaN", "<script", "href"}) EXPECT_EQ(svg->find(word), std::string::npos) << word;
  return *root;
}

inline double number(const XmlElement& element, const std::string& key) {
  return std::stod(element.attribute(key));
}

inline ChartPoint place_of(const XmlElement& marker) {
  double x = -1, y = -1;
  EXPECT_EQ(std::sscanf(marker.attribute("transform").c_str(), "translate(%lf,%lf)", &x, &y), 2);
  return {x, y};
}

}  // namespace tcpx::testing
