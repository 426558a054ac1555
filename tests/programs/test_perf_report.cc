// The report and the chart of test_tcpx_perf, beside those of others.
#include "tools/perf/perf_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/example_report.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/xml_reader.h"

namespace tcpx::perf {
namespace {

PerfRow row_of(uint64_t bytes, double us) {
  const double rate = static_cast<double>(bytes) / us / 1e3;
  return {.bytes = bytes, .time = {5, us, us, us}, .average_us = us, .gb_per_second = rate, .nics = {{"eth1", rate}}};
}

Report report_of(PerfMode mode, double us = 100) {
  const TableHead head{.version = "1", .mode = mode, .server = "s", .client = "c", .nics = {"eth1"}, .channels = 1};
  return make_perf_report(head, {row_of(4096, us), row_of(8192, us)}, "ncclNetPlugin_v7", {"a plugin"});
}

/// What bench_soft_plugin writes of its best runs.
Report soft_report() {
  Table table{.title = "One way, the best of each",
              .row_heading = "message",
              .columns = {{"bytes", "B"}, {"gpu", "GB/s"}, {"NCCL", "GB/s"}, {"gpu / NCCL", ""}},
              .rows = {{"4 KiB", {4096.0, 3.0, 1.0, 3.0}, true}}};
  return {.key = "bench_soft_plugin", .about = "a", .devices = {"d"}, .parameters = {}, .tables = {table}};
}

std::vector<std::string> legend_of(const std::string& svg) {
  const auto root = testing::parse_xml(svg);
  EXPECT_TRUE(root.is_ok()) << root.status().to_string();
  std::vector<std::string> names;
  for (const testing::XmlElement* element : root->of_class("legend-label")) names.push_back(element->text);
  std::sort(names.begin(), names.end());
  return names;
}

TEST(PerfReport, HoldsEveryRowAndCanBeReadBack) {
  const Report report = report_of(PerfMode::kOneWay);
  ASSERT_TRUE(check_report(report).is_ok()) << check_report(report).to_string();
  ASSERT_EQ(report.tables.size(), 1u);
  EXPECT_EQ(report.tables[0].title, "One way");
  ASSERT_EQ(report.tables[0].rows.size(), 2u);
  EXPECT_TRUE(report.tables[0].rows[0].verified);
  const auto json = report_json(report);
  ASSERT_TRUE(json.is_ok());
  const auto back = parse_report(*json);
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(*back, report);
}

TEST(PerfReport, ARowWithWrongBytesIsNotVerified) {
  PerfRow wrong = row_of(8, 1), unverified = row_of(16, 1);
  wrong.wrong = 1;
  unverified.verified = false;
  const Report report = make_perf_report({.nics = {"eth1"}}, {wrong, unverified}, "v7", {});
  EXPECT_FALSE(report.tables[0].rows[0].verified);
  EXPECT_FALSE(report.tables[0].rows[1].verified);
}

TEST(PerfChart, HasALinePerFileAndPanelsForWhatThereIs) {
  const auto alone = perf_chart({{"this run", report_of(PerfMode::kOneWay)}});
  ASSERT_TRUE(alone.is_ok()) << alone.status().to_string();
  EXPECT_EQ(legend_of(*alone), (std::vector<std::string>{"this run"}));
  EXPECT_EQ(alone->find("Latency by size"), std::string::npos);
  const auto all = perf_chart({{"this run", report_of(PerfMode::kOneWay)},
                               {"earlier", report_of(PerfMode::kOneWay, 200)},
                               {"small", report_of(PerfMode::kLatency, 10)},
                               {"both", report_of(PerfMode::kBidirectional)},
                               {"soft", soft_report()}});
  ASSERT_TRUE(all.is_ok()) << all.status().to_string();
  EXPECT_EQ(legend_of(*all),
            (std::vector<std::string>{"NCCL, soft", "both, both ways", "earlier", "gpu, soft", "small", "this run"}));
  EXPECT_NE(all->find("Latency by size"), std::string::npos);
}

TEST(PerfChart, FilesOfOneNameKeepTheirLines) {
  const auto chart = perf_chart({{"a", report_of(PerfMode::kOneWay)}, {"a", report_of(PerfMode::kOneWay, 200)}});
  ASSERT_TRUE(chart.is_ok()) << chart.status().to_string();
  EXPECT_EQ(legend_of(*chart), (std::vector<std::string>{"a", "a #2"}));
  const std::string long_name(200, 'x');
  EXPECT_TRUE(perf_chart({{long_name, report_of(PerfMode::kOneWay)}, {long_name, report_of(PerfMode::kOneWay)}}).is_ok());
}

TEST(PerfChart, WhatCannotBeDrawnIsAnErrorWithItsName) {
  const testing::TemporaryDirectory directory;
  const std::string good = directory.file("good.json"), other = directory.file("other.json");
  ASSERT_TRUE(save_report(report_of(PerfMode::kOneWay), good).is_ok());
  ASSERT_TRUE(save_report(testing::example_report(), other).is_ok());
  const auto loaded = load_for_chart(good);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->name, "good");
  const Status status = load_for_chart(other).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.detail().find("other"), std::string::npos) << status.to_string();
  EXPECT_EQ(load_for_chart(directory.file("none.json")).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tcpx::perf
