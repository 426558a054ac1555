#include "perf/report_series.h"

#include <gtest/gtest.h>

#include "tests/support/example_report.h"

namespace tcpx {
namespace {

Table by_size() {
  Table table = {"by size", "fragment", {{"bytes", "B"}, {"kernel", "GB/s"}, {"host", "GB/s"}}, {}};
  table.rows = {{"64 B", {64.0, Summary{5, 1, 2, 3}, 0.5}, true},
                {"1 KiB", {1024.0, 20.0, {}}, true},
                {"4 KiB", {4096.0, "failed", 7.0}, false}};
  return table;
}

TEST(ReportSeries, RowsWithBothNumbersBecomePoints) {
  const auto series = series_of(by_size(), "bytes", "kernel", "kernel, 16 blocks");
  ASSERT_TRUE(series.is_ok());
  EXPECT_EQ(*series, (ChartSeries{"kernel, 16 blocks", {{64, 2}, {1024, 20}}}));
}

TEST(ReportSeries, AnUnverifiedPointMarksTheSeries) {
  const auto series = series_of(by_size(), "bytes", "host", "host");
  ASSERT_TRUE(series.is_ok());
  EXPECT_EQ(*series, (ChartSeries{"host (unverified)", {{64, 0.5}, {4096, 7}}}));
}

TEST(ReportSeries, AnEarlierReportGivesTheSameSeries) {
  Report report = testing::example_report();
  report.tables = {by_size()};
  const auto earlier = parse_report(report_json(report).value());
  ASSERT_TRUE(earlier.is_ok());
  EXPECT_EQ(series_of(earlier->tables[0], "bytes", "host", "x").value(), series_of(by_size(), "bytes", "host", "x").value());
}

TEST(ReportSeries, MissingColumnsAndCellsAreRefused) {
  EXPECT_EQ(series_of(by_size(), "size", "host", "x").status().code(), Code::kNotFound);
  EXPECT_EQ(series_of(by_size(), "bytes", "Host", "x").status().code(), Code::kNotFound);
  Table table = by_size();
  table.rows[1].cells.pop_back();
  EXPECT_EQ(series_of(table, "bytes", "kernel", "x").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx
