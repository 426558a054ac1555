#include "measure/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "measure/plain_text.h"
#include "tests/support/example_report.h"

namespace tcpx {
namespace {

using testing::example_report;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The lines of the table `title` of the text: heading, rule, rows.
std::vector<std::string> table_lines(const std::string& text, const std::string& title) {
  std::vector<std::string> lines = lines_of(text), table;
  auto line = std::find(lines.begin(), lines.end(), title);
  EXPECT_NE(line, lines.end()) << title;
  while (line != lines.end() && ++line != lines.end() && !line->empty()) table.push_back(*line);
  return table;
}

/// Column (in characters) at which `part` begins.
size_t column_of(const std::string& line, const std::string& part) {
  const size_t at = line.find(part);
  EXPECT_NE(at, std::string::npos) << part << " in: " << line;
  return display_width(line.substr(0, at));
}

// Text
// ----------------------------------------------------------------------------------------------------------------------

TEST(ReportText, SaysWhatWasMeasuredAndWhere) {
  const std::string text = report_text(example_report()).value();
  EXPECT_EQ(lines_of(text)[0], "unpack: tcpx " TCPX_VERSION ", ABI ncclNetPlugin_v7");
  for (const char* part : {"Gathers fragments; the bytes counted", "device: NVIDIA H200, driver 580.159.04\n",
                           "bytes: 67108864\npool: 1 GiB\n", "of 5 to 9 samples", "\n64 MiB by method\n", "\nlatency\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(ReportText, ColumnsAreAligned) {
  const std::vector<std::string> lines = table_lines(report_text(example_report()).value(), "64 MiB by method");
  ASSERT_EQ(lines.size(), 5u);
  // Values, brackets and the verdict stand below each other; "≥" takes one column.
  EXPECT_EQ(column_of(lines[2], "1748 [1700 .. 1750]"), column_of(lines[3], "1661 [1600 .. 1702]"));
  EXPECT_EQ(column_of(lines[2], " 1748   ") + 5, column_of(lines[3], "0.500 [") + 5);
  EXPECT_EQ(column_of(lines[4], "12.5") + 4, column_of(lines[3], "0.500") + 5) << "right ends of a number and a median";
  for (size_t i = 2; i < 5; ++i) EXPECT_EQ(column_of(lines[i], i == 4 ? "unverified" : "verified"), column_of(lines[0], "data"));
  EXPECT_EQ(display_width(lines[1]), display_width(lines[4])) << "the rule is as long as the longest line";
  for (const std::string& line : lines) EXPECT_NE(line.back(), ' ');
}

TEST(ReportText, ARowThatWasNotVerifiedSaysSo) {
  Report report = example_report();
  const auto marked = [&] {
    size_t count = 0;
    for (const std::string& line : lines_of(report_text(report).value())) count += line.ends_with("  unverified") ? 1 : 0;
    return count;
  };
  EXPECT_EQ(marked(), 1u);
  for (Table& table : report.tables) {
    for (Row& row : table.rows) row.verified = false;
  }
  EXPECT_EQ(marked(), 4u);
}

TEST(ReportText, TheParagraphIsWrapped) {
  Report report = example_report();
  report.about.clear();
  for (int i = 0; i < 60; ++i) report.about += "words ";
  report.about += std::string(150, 'x');
  for (const std::string& line : lines_of(report_text(report).value())) {
    EXPECT_TRUE(line.size() <= 100 || line == std::string(150, 'x')) << line;
  }
}

TEST(ReportText, TablesWithoutRowsOrColumnsHaveTheirHeading) {
  Report report = example_report();
  report.tables = {{"empty", "size", {{"rate", "GB/s"}}, {}}, {"bare", "step", {}, {{"one", {}, true}}}};
  const std::string text = report_text(report).value();
  EXPECT_EQ(table_lines(text, "empty"), (std::vector<std::string>{"size  rate (GB/s)  data", "----  -----------  ----------"}));
  EXPECT_EQ(table_lines(text, "bare").size(), 3u);
}

Table sizes_table() {
  return {"One way",
          "size",
          {{"bytes", "B"}, {"time", "us"}, {"p99", "us"}, {"rate", "GB/s"}},
          {{"64 B", {64.0, Summary{3, 1, 2.5, 30}, Cell(), 0.0256}, true},
           {"1 MiB", {1048576.0, Summary{20, 100, 200, 300}, 290.25, 5.24}, false}}};
}

TEST(ReportRows, StandBelowTheirHeadings) {
  const Table table = sizes_table();
  const std::vector<std::string> lines =
      lines_of(row_headings(table, table.rows[0]) + row_line(table, table.rows[0]) + row_line(table, table.rows[1]));
  EXPECT_EQ(lines, (std::vector<std::string>{"#    bytes    count      min   median      max      p99     rate  data",
                                             "#      (B)              (us)     (us)     (us)     (us)   (GB/s)",
                                             "        64        3     1.00     2.50     30.0        -    0.026  verified",
                                             "   1048576       20      100      200      300      290     5.24  unverified"}));
}

TEST(ReportRows, AreValuesBetweenCommas) {
  Table table = sizes_table();
  const std::vector<std::string> lines = lines_of(table_csv(table));
  EXPECT_EQ(lines, (std::vector<std::string>{"bytes (B),count,min (us),median (us),max (us),p99 (us),rate (GB/s),data",
                                             "64,3,1.000000,2.500000,30.000000,,0.025600,verified",
                                             "1048576,20,100.000000,200.000000,300.000000,290.250000,5.240000,unverified"}));
  table.rows.clear();
  EXPECT_EQ(table_csv(table), "");
}

// Ratios
// --------------------------------------------------------------------------------------------------------------------

TEST(ReportRatios, AColumnDividesTheMediansOfTwoOthers) {
  Table table = example_report().tables[0];
  add_ratio_column(table, "4096 B", "1448 B");
  EXPECT_EQ(table.columns.back(), (Column{"4096 B / 1448 B", ""}));
  EXPECT_EQ(table.rows[0].cells.back(), Cell(1748.25 / 1748));
  EXPECT_EQ(table.rows[2].cells.back(), Cell()) << "there is nothing to divide";
  table.rows[0].cells[0] = 0.0;
  add_ratio_column(table, "1448 B", "4096 B");
  EXPECT_EQ(table.rows[0].cells.back(), Cell()) << "zero below";
  const Table before = table;
  add_ratio_column(table, "no column", "4096 B");
  EXPECT_EQ(table, before);
}

TEST(ReportRatios, ATableDividesEveryColumnWithNumbers) {
  const auto ratios = ratio_table(example_report().tables[0], "contiguous copy", "ratios");
  ASSERT_TRUE(ratios.is_ok());
  EXPECT_EQ(ratios->title, "ratios");
  EXPECT_EQ(ratios->columns, (std::vector<Column>{{"4096 B", ""}, {"1448 B", ""}}));
  ASSERT_EQ(ratios->rows.size(), 3u);
  EXPECT_EQ(ratios->rows[1], (Row{"kernel", {1661.125 / 1748.25, 0.5 / 1748}, true}));
  EXPECT_EQ(ratios->rows[2], (Row{"no check", {{}, 12.5 / 1748}, false}));
}

TEST(ReportRatios, AnUnverifiedReferenceMakesEveryRowUnverified) {
  const auto ratios = ratio_table(example_report().tables[0], "no check", "ratios");
  ASSERT_TRUE(ratios.is_ok());
  for (const Row& row : ratios->rows) EXPECT_FALSE(row.verified) << row.name;
}

TEST(ReportRatios, WhatCannotBeDividedIsRefused) {
  Table table = example_report().tables[0];
  EXPECT_EQ(ratio_table(table, "no row", "x").status().code(), Code::kNotFound);
  table.rows[0].cells[1] = 0.0;
  EXPECT_EQ(ratio_table(table, "contiguous copy", "x").status().code(), Code::kInvalidArgument);
  table.rows[0].cells.pop_back();
  EXPECT_EQ(ratio_table(table, "contiguous copy", "x").status().code(), Code::kInvalidArgument) << "a cell is missing";
}

// Check
// ---------------------------------------------------------------------------------------------------------------------

TEST(ReportCheck, BadValuesAreRefusedByNameInTextAndJson) {
  using Change = void (*)(Report&);
  const std::vector<std::pair<const char*, Change>> changes = {
      {"key", [](Report& r) { r.key = std::string(""); }},
      {"key", [](Report& r) { r.key = std::string("Un pack"); }},
      {"about", [](Report& r) { r.about = std::string(""); }},
      {"about", [](Report& r) { r.about = std::string("two\nlines"); }},
      {"version", [](Report& r) { r.version = std::string(""); }},
      {"abi", [](Report& r) { r.abi = std::string("\x80"); }},
      {"device", [](Report& r) { r.devices.push_back(""); }},
      {"parameter", [](Report& r) { r.parameters[""] = std::string("1"); }},
      {"parameter 'x'", [](Report& r) { r.parameters["x"] = std::string("\t"); }},
      {"title of table 1", [](Report& r) { r.tables[1].title = r.tables[0].title; }},
      {"row heading", [](Report& r) { r.tables[1].row_heading = std::string(""); }},
      {"column 1: repeats '4096 B'", [](Report& r) { r.tables[0].columns[1].name = std::string("4096 B"); }},
      {"unit of column 0", [](Report& r) { r.tables[0].columns[0].unit = std::string("\n"); }},
      {"row 2: repeats 'kernel'", [](Report& r) { r.tables[0].rows[2].name = std::string("kernel"); }},
      {"3 columns", [](Report& r) { r.tables[0].rows[2].cells.pop_back(); }},
      {"row 'no check', column '1448 B'", [](Report& r) { r.tables[0].rows[2].cells[1] = NAN; }},
      {"row 'no check', column '1448 B'", [](Report& r) { r.tables[0].rows[2].cells[1] = INFINITY; }},
      {"column 'note'", [](Report& r) { r.tables[0].rows[2].cells[2] = std::string(""); }},
      {"no samples",
       [](Report& r) {
         r.tables[1].rows[0].cells[0] = Summary{0, 1, 1, 1};
       }},
      {"out of order",
       [](Report& r) {
         r.tables[1].rows[0].cells[0] = Summary{5, 2, 1, 3};
       }},
      {"out of order",
       [](Report& r) {
         r.tables[1].rows[0].cells[0] = Summary{5, 1, 3, 2};
       }},
      {"not finite",
       [](Report& r) {
         r.tables[1].rows[0].cells[0] = Summary{5, NAN, 3, 4};
       }},
  };
  ASSERT_TRUE(check_report(example_report()).is_ok());
  for (const auto& [where, change] : changes) {
    Report report = example_report();
    change(report);
    const Status status = check_report(report);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << where;
    EXPECT_NE(status.detail().find(where), std::string::npos) << status.detail();
    EXPECT_FALSE(report_text(report).is_ok()) << where;
    EXPECT_FALSE(report_json(report).is_ok()) << where;
  }
}

TEST(ReportCheck, AReportThatCouldNotBeReadIsNotWritten) {
  Report report = example_report();
  report.about = std::string(kMaxReportBytes, 'a');
  EXPECT_EQ(report_json(report).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx
