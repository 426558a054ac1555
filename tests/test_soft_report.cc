// The tables, ratios and chart of bench_soft_plugin, from results made up here.
#include "bench/soft_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tcpx::bench {
namespace {

constexpr uint64_t kMiB = 1 << 20;

Measured measured(double median, double per_core_second = 0) {
  return {.summary = {5, median, median, median}, .gigabytes_per_core_second = per_core_second, .mismatch = ""};
}

SoftResults example() {
  SoftResults results;
  results.plugin = {
      {.memory = "host", .sockets = 1, .one_way = {{8, measured(0.25)}, {kMiB, measured(5, 2)}}, .ping_pong = {{8, measured(8)}}},
      {.memory = "host",
       .sockets = 4,
       .one_way = {{8, measured(0.125)}, {kMiB, measured(10, 4)}},
       .ping_pong = {{8, measured(12)}}},
      {.memory = "gpu", .sockets = 4, .one_way = {{8, measured(0.0625)}, {kMiB, measured(6)}}, .ping_pong = {{8, measured(21)}}}};
  results.raw = {{.streams = 1, .in_cache = measured(6), .working_set = measured(5)},
                 {.streams = 4, .in_cache = measured(20), .working_set = measured(12.5)}};
  results.raw_ping_pong = {{8, measured(4)}};
  results.raw_cached_bytes = 512 * 1024;
  results.raw_message_bytes = 64 * kMiB;
  results.nccl = {{.label = "default", .one_way = {{kMiB, measured(2)}}, .ping_pong = {{8, measured(30)}}},
                  {.label = "tuned", .one_way = {{kMiB, measured(3)}}, .ping_pong = {{8, measured(40)}}}};
  return results;
}

const Table* table(const Report& report, std::string_view title) {
  const auto found = std::find_if(report.tables.begin(), report.tables.end(), [&](const Table& t) { return t.title == title; });
  return found == report.tables.end() ? nullptr : &*found;
}

/// The number of a cell; -1 where there is none.
double number(const Table* table, std::string_view row, std::string_view column) {
  if (table == nullptr) return -1;
  for (const Row& candidate : table->rows) {
    if (candidate.name != row) continue;
    for (size_t i = 0; i < table->columns.size(); ++i) {
      if (table->columns[i].name == column) return number_in(candidate.cells[i]).value_or(-1);
    }
  }
  return -1;
}

TEST(SoftReport, IsAReport) {
  const Report report = make_soft_report(example(), {"GPU 0: a GPU"}, {{"samples", "5"}});
  EXPECT_TRUE(check_report(report).is_ok()) << check_report(report).to_string();
  EXPECT_EQ(report.key, "bench_soft_plugin");
  EXPECT_EQ(report.parameters.at("samples"), "5");
  EXPECT_TRUE(report_text(report).is_ok());
}

TEST(SoftReport, HasAColumnPerNumberOfSockets) {
  const Report report = make_soft_report(example(), {}, {});
  const Table* host = table(report, "One way, host");
  EXPECT_EQ(number(host, "8 B", "1 socket"), 0.25);
  EXPECT_EQ(number(host, "1 MiB", "4 sockets"), 10);
  EXPECT_EQ(number(table(report, "Half a round trip, gpu"), "8 B", "4 sockets"), 21);
  EXPECT_EQ(number(table(report, "Per core-second, one way, host"), "1 MiB", "4 sockets"), 4);
  EXPECT_EQ(number(table(report, "Per core-second, one way, host"), "8 B", "4 sockets"), -1);  // not known
}

TEST(SoftReport, ComparesTheBestOfEach) {
  const Report report = make_soft_report(example(), {}, {});
  const Table* one_way = table(report, "One way, the best of each");
  EXPECT_EQ(number(one_way, "8 B", "host"), 0.25);
  EXPECT_EQ(number(one_way, "1 MiB", "host"), 10);
  EXPECT_EQ(number(one_way, "1 MiB", "NCCL"), 3);
  EXPECT_EQ(number(one_way, "1 MiB", "gpu / NCCL"), 2);
  EXPECT_EQ(number(one_way, "8 B", "gpu / NCCL"), -1);  // NCCL has no such row
  const Table* ping_pong = table(report, "Half a round trip, the best of each");
  EXPECT_EQ(number(ping_pong, "8 B", "host"), 8);
  EXPECT_EQ(number(ping_pong, "8 B", "host / raw TCP"), 2);
  EXPECT_EQ(number(ping_pong, "8 B", "gpu / NCCL"), 0.7);
}

TEST(SoftReport, ComparesEqualStreamsAtTheLargestMessage) {
  const Report report = make_soft_report(example(), {}, {});
  const Table* sockets = table(report, "One way by data sockets");
  EXPECT_EQ(number(sockets, "1 socket", "host"), 5);
  EXPECT_EQ(number(sockets, "1 socket", "gpu"), -1);
  EXPECT_EQ(number(sockets, "1 socket", "host / raw TCP, 64 MiB"), 1);
  EXPECT_EQ(number(sockets, "4 sockets", "host / raw TCP, in cache"), 0.5);
  EXPECT_EQ(number(sockets, "4 sockets", "gpu"), 6);
}

TEST(SoftReport, LeavesOutWhatWasNotMeasured) {
  SoftResults results = example();
  results.nccl.clear();
  results.raw.clear();
  results.plugin.pop_back();
  const Report report = make_soft_report(results, {}, {});
  EXPECT_TRUE(check_report(report).is_ok()) << check_report(report).to_string();
  EXPECT_EQ(table(report, "One way, gpu"), nullptr);
  EXPECT_EQ(table(report, "One way, NCCL"), nullptr);
  EXPECT_EQ(number(table(report, "One way, the best of each"), "1 MiB", "NCCL"), -1);
  EXPECT_EQ(table(report, "One way by data sockets")->columns.size(), 2u);
  EXPECT_TRUE(make_soft_report({}, {}, {}).tables.empty());
}

TEST(SoftReport, OneWrongMessageMakesItsRowsUnverified) {
  SoftResults results = example();
  EXPECT_EQ(first_mismatch(results), "");
  results.plugin[1].one_way[kMiB].mismatch = "1 of 1048576 bytes differ";
  EXPECT_EQ(first_mismatch(results), "host, 4 sockets, one way, 1 MiB: 1 of 1048576 bytes differ");
  const Report report = make_soft_report(results, {}, {});
  EXPECT_TRUE(table(report, "One way, host")->rows[0].verified);
  EXPECT_FALSE(table(report, "One way, host")->rows[1].verified);
  EXPECT_FALSE(table(report, "One way, the best of each")->rows[1].verified);
  EXPECT_FALSE(table(report, "One way by data sockets")->rows[1].verified);
  EXPECT_TRUE(table(report, "One way, gpu")->rows[1].verified);
}

TEST(SoftReport, SeesWrongBytesWhereverTheyAre) {
  const Measured wrong{.summary = {5, 1, 1, 1}, .gigabytes_per_core_second = 0, .mismatch = "wrong"};
  SoftResults results = example();
  results.plugin[2].ping_pong[8] = wrong;
  EXPECT_EQ(first_mismatch(results), "gpu, 4 sockets, ping-pong, 8 B: wrong");
  results = example();
  results.raw[0].in_cache = wrong;
  EXPECT_EQ(first_mismatch(results), "raw TCP, 1 stream, 512 KiB: wrong");
  results = example();
  results.raw[1].working_set = wrong;
  EXPECT_EQ(first_mismatch(results), "raw TCP, 4 streams, 64 MiB: wrong");
  results = example();
  results.raw_ping_pong[8] = wrong;
  EXPECT_EQ(first_mismatch(results), "raw TCP, ping-pong, 8 B: wrong");
  results = example();
  results.nccl[1].one_way[kMiB] = wrong;
  EXPECT_EQ(first_mismatch(results), "NCCL, tuned, one way, 1 MiB: wrong");
  results = example();
  results.nccl[0].ping_pong[8] = wrong;
  EXPECT_EQ(first_mismatch(results), "NCCL, default, ping-pong, 8 B: wrong");
}

TEST(SoftChart, HasALinePerTransportAndNoRatio) {
  const Result<std::string> chart = soft_chart(make_soft_report(example(), {"GPU 0: a GPU"}, {}));
  ASSERT_TRUE(chart.is_ok()) << chart.status().to_string();
  for (const char* text : {">host<", ">gpu<", ">NCCL<", ">raw TCP<", ">raw TCP, 64 MiB<", ">One way<", ">Half a round trip<"}) {
    EXPECT_NE(chart->find(text), std::string::npos) << text;
  }
  EXPECT_EQ(chart->find("gpu / NCCL"), std::string::npos);
  EXPECT_FALSE(soft_chart(make_soft_report({}, {}, {})).is_ok());
}

}  // namespace
}  // namespace tcpx::bench
