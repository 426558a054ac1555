#include "perf/svg_heat_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"
#include "perf/svg.h"
#include "tests/support/xml_reader.h"

namespace tcpx {
namespace {

using testing::parse_xml;
using testing::XmlElement;
using Kind = HeatCell::Kind;

/// Every pair measured: row i, column j has 10 i + j.
HeatMap map_of(size_t count) {
  HeatMap map{.title = "mesh", .subtitle = "64 MiB", .row_heading = "sender", .column_heading = "receiver", .unit = "GB/s"};
  for (size_t i = 0; i < count; ++i) {
    map.names.push_back(concat("host", i));
    for (size_t j = 0; j < count; ++j) {
      map.cells.push_back(i == j ? HeatCell{} : HeatCell{Kind::kValue, static_cast<double>(10 * i + j)});
    }
  }
  return map;
}

XmlElement drawn(const HeatMap& map) {
  const Result<std::string> svg = svg_heat_map(map);
  EXPECT_TRUE(svg.is_ok()) << svg.status().to_string();
  const Result<XmlElement> root = parse_xml(*svg);
  EXPECT_TRUE(root.is_ok()) << root.status().to_string();
  EXPECT_EQ(root->name, "svg");
  for (const char* word : {"nan", "inf", "<script", "href"}) EXPECT_EQ(svg->find(word), std::string::npos) << word;
  return *root;
}

std::vector<std::string> texts(const XmlElement& root, const std::string& kind) {
  std::vector<std::string> found;
  for (const XmlElement* element : root.of_class(kind)) found.push_back(element->text);
  return found;
}

double number(const XmlElement& element, const std::string& key) {
  return std::stod(element.attribute(key));
}

/// How bright people see "#rrggbb", 0 ... 1: relative luminance as WCAG 2 defines it.
double luminance(const std::string& colour) {
  EXPECT_EQ(colour.size(), 7u) << colour;
  double sum = 0;
  for (const auto& [at, weight] : {std::pair{1, 0.2126}, {3, 0.7152}, {5, 0.0722}}) {
    const double channel = std::stoi(colour.substr(static_cast<size_t>(at), 2), nullptr, 16) / 255.0;
    sum += weight * (channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4));
  }
  return sum;
}

TEST(SvgHeatMap, EveryValueStandsInTheCellOfItsPair) {
  const XmlElement root = drawn(map_of(4));
  const auto boxes = root.of_class("cell"), values = root.of_class("value");
  const auto rows = root.of_class("row"), columns = root.of_class("column");
  ASSERT_EQ(boxes.size(), 12u);
  ASSERT_EQ(values.size(), 12u);
  ASSERT_EQ(rows.size(), 4u);
  ASSERT_EQ(columns.size(), 4u);
  size_t at = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i]->text, concat(i, " host", i));
    EXPECT_EQ(columns[i]->text, concat(i));
    for (size_t j = 0; j < 4; ++j) {
      if (i == j) continue;
      const XmlElement &box = *boxes[at], &value = *values[at];
      EXPECT_EQ(std::stod(value.text), 10.0 * static_cast<double>(i) + static_cast<double>(j));
      const double x = number(box, "x"), y = number(box, "y");
      for (const double text_x : {number(value, "x"), number(*columns[j], "x")}) {
        EXPECT_NEAR(text_x, x + number(box, "width") / 2, 0.02);
      }
      for (const double text_y : {number(value, "y"), number(*rows[i], "y")}) {
        EXPECT_TRUE(text_y > y && text_y < y + number(box, "height"));
      }
      EXPECT_EQ(box.children.at(0).text, concat(i, " host", i, " to ", j, " host", j, ": ", value.text, " GB/s"));
      ++at;
    }
  }
}

TEST(SvgHeatMap, MoreIsDarker) {
  for (int i = 1; i <= 100; ++i) EXPECT_LT(luminance(heat_colour(i / 100.0)), luminance(heat_colour((i - 1) / 100.0))) << i;
  EXPECT_EQ(heat_colour(-1), heat_colour(0));
  EXPECT_EQ(heat_colour(2), heat_colour(1));
  HeatMap map = map_of(2);
  map.cells[1].value = 0;
  map.cells[2].value = 5;
  const XmlElement root = drawn(map);
  EXPECT_EQ(root.of_class("cell").at(0)->attribute("fill"), heat_colour(0));
  EXPECT_EQ(root.of_class("cell").at(1)->attribute("fill"), heat_colour(1));
}

TEST(SvgHeatMap, ValuesCanBeReadOnEveryColour) {
  HeatMap map = map_of(2);
  map.cells[2].value = 100;
  for (int i = 0; i <= 100; ++i) {
    map.cells[1].value = i;
    const XmlElement root = drawn(map);
    const double box = luminance(root.of_class("cell").at(0)->attribute("fill"));
    const double text = luminance(root.of_class("value").at(0)->attribute("fill"));
    EXPECT_GT((std::max(box, text) + 0.05) / (std::min(box, text) + 0.05), 4.0) << i;
  }
}

TEST(SvgHeatMap, TheScaleNamesTheValuesOfItsColours) {
  const XmlElement root = drawn(map_of(4));  // 1 ... 32
  const XmlElement& scale = *root.of_class("scale").at(0);
  EXPECT_EQ(texts(scale, "unit"), (std::vector<std::string>{"GB/s"}));
  const auto shades = scale.of_class("shade"), ticks = scale.of_class("tick");
  const auto labels = texts(scale, "tick-label");
  ASSERT_GE(labels.size(), 3u);
  EXPECT_EQ(labels.front(), "0");
  const double bottom = number(*shades.front(), "y") + number(*shades.front(), "height"), top = number(*shades.back(), "y");
  for (size_t i = 0; i < labels.size(); ++i) {
    EXPECT_NEAR(number(*ticks[i], "y1"), bottom + (top - bottom) * std::stod(labels[i]) / 32, 0.02)
        << "the largest is at the top";
  }
  EXPECT_EQ(texts(root, "legend-label"), (std::vector<std::string>{"the same rank", "not measured", "failed"}));
}

TEST(SvgHeatMap, CellsWithoutAValueAreMarked) {
  HeatMap map = map_of(3);
  map.cells[1] = {};
  map.cells[5] = {Kind::kFailed};
  const XmlElement root = drawn(map);
  EXPECT_EQ(root.of_class("diagonal").size(), 3u);
  ASSERT_EQ(root.of_class("empty").size(), 1u);
  EXPECT_EQ(root.of_class("empty")[0]->children.at(0).text, "0 host0 to 1 host1: not measured");
  ASSERT_EQ(root.of_class("failed").size(), 1u);
  EXPECT_EQ(root.of_class("failed")[0]->children.at(0).text, "1 host1 to 2 host2: failed");
  EXPECT_EQ(root.of_class("cross").size(), 4u) << "two lines in the cell, two in the legend";
  EXPECT_EQ(root.of_class("value").size(), 4u);
}

TEST(SvgHeatMap, AMapWithoutAnyValueIsStillAMap) {
  HeatMap map = map_of(2);
  map.cells.assign(4, {});
  EXPECT_EQ(drawn(map).of_class("empty").size(), 2u);
  map.cells[1] = {Kind::kValue, 0};
  EXPECT_EQ(texts(drawn(map), "value"), (std::vector<std::string>{"0"}));
}

TEST(SvgHeatMap, AllPartsLieInsideAndTextFitsItsCell) {
  for (const size_t count : {2u, 16u, 17u, 33u, 64u}) {
    HeatMap map = map_of(count);
    map.cells[1].value = 12345;
    const XmlElement root = drawn(map);
    const double width = number(root, "width"), height = number(root, "height");
    const auto boxes = root.of_class("cell"), values = root.of_class("value");
    for (size_t i = 0; i < boxes.size(); ++i) {
      EXPECT_GE(number(*boxes[i], "width"), svg_text_width(values[i]->text, number(*values[i], "font-size")));
      EXPECT_LE(number(*boxes[i], "x") + number(*boxes[i], "width"), width);
      EXPECT_LE(number(*boxes[i], "y") + number(*boxes[i], "height"), height);
    }
    for (const char* kind : {"legend-label", "tick-label"}) {
      for (const XmlElement* label : root.of_class(kind)) {
        EXPECT_LE(number(*label, "x") + svg_text_width(label->text), width) << label->text;
        EXPECT_LE(number(*label, "y"), height) << label->text;
      }
    }
    for (const XmlElement* label : root.of_class("row")) {
      EXPECT_GE(number(*label, "x") - svg_text_width(label->text, number(*label, "font-size")), 0) << label->text;
    }
  }
}

TEST(SvgHeatMap, TextIsEscapedWhereverItStands) {
  const std::string text = "<b> & \"c\" 'd' µ";
  HeatMap map = map_of(2);
  map.title = map.subtitle = map.row_heading = map.column_heading = map.unit = map.names[1] = text;
  const XmlElement root = drawn(map);
  for (const char* kind : {"row-heading", "column-heading", "unit"}) {
    EXPECT_EQ(texts(root, kind), (std::vector<std::string>{text})) << kind;
  }
  for (const char* kind : {"title", "subtitle"}) EXPECT_EQ(texts(root, kind).at(0).substr(0, 3), "<b>") << kind;
  EXPECT_EQ(texts(root, "row").at(1), "1 " + text);
  EXPECT_NE(root.of_class("cell").at(0)->children.at(0).text.find("to 1 " + text), std::string::npos);
}

TEST(SvgHeatMap, BadInputIsRefusedByName) {
  using Change = void (*)(HeatMap&);
  const std::vector<std::pair<const char*, Change>> changes = {
      {"names", [](HeatMap& m) { m = map_of(1); }},
      {"names", [](HeatMap& m) { m = map_of(HeatMap::kMostNames + 1); }},
      {"cells", [](HeatMap& m) { m.cells.pop_back(); }},
      {"title", [](HeatMap& m) { m.title = "\xff"; }},
      {"subtitle", [](HeatMap& m) { m.subtitle = std::string(HeatMap::kLongestTitle + 1, 'x'); }},
      {"heading or unit", [](HeatMap& m) { m.unit = "a\nb"; }},
      {"name 2", [](HeatMap& m) { m.names[2] = std::string(HeatMap::kLongestLabel + 1, 'x'); }},
      {"cell 1, 1",
       [](HeatMap& m) {
         m.cells[4] = {Kind::kValue, 1};
       }},
      {"cell 0, 1", [](HeatMap& m) { m.cells[1].value = -1; }},
      {"cell 2, 0", [](HeatMap& m) { m.cells[6].value = std::numeric_limits<double>::quiet_NaN(); }},
      {"cell 0, 2", [](HeatMap& m) { m.cells[2].value = 1.1e15; }},
  };
  ASSERT_TRUE(svg_heat_map(map_of(3)).is_ok());
  for (const auto& [where, change] : changes) {
    HeatMap map = map_of(3);
    change(map);
    const Status status = svg_heat_map(map).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << where;
    EXPECT_EQ(status.detail().find(where), 0u) << status.detail();
  }
}

}  // namespace
}  // namespace tcpx
