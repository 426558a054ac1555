// Tables and ratios of bench_soft_plugin and bench_endpoint, from results made up here.
#include "programs/compare/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tcpx {
namespace {

constexpr uint64_t kMiB = 1 << 20;

Measured measured(double median, double per_core_second = 0) {
  return {.summary = {5, median, median, median}, .gigabytes_per_core_second = per_core_second, .mismatch = ""};
}

MeasuredRun run(std::string name, uint32_t sockets, MeasuredBy one_way, MeasuredBy ping_pong = {}) {
  return {.name = std::move(name), .sockets = sockets, .one_way = std::move(one_way), .ping_pong = std::move(ping_pong)};
}

std::vector<MeasuredRun> example() {
  return {run("plugin", 4, {{8, measured(0.125)}, {kMiB, measured(10, 4)}}, {{8, measured(12)}}),
          run("pipeline", 4, {{kMiB, measured(9, 3)}}, {{8, measured(15)}})};
}

Section section() {
  return {.title = "host", .one_way = {8, kMiB}, .ping_pong = {8}, .ratios = {{"pipeline", "plugin"}}, .costs = true};
}

Report report_of(const Section& section, const std::vector<MeasuredRun>& runs) {
  const std::atomic<bool> stop = false;
  Comparison comparison(ComparisonOptions(200), stop);
  comparison.report().key = "bench_soft_plugin";
  comparison.report().about = "a test";
  comparison.add_tables(section, runs);
  return comparison.report();
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

TEST(Comparison, HasATableOfRatesOfTimesAndOfCosts) {
  const Report report = report_of(section(), example());
  EXPECT_TRUE(check_report(report).is_ok()) << check_report(report).to_string();
  EXPECT_TRUE(report_text(report).is_ok());
  const Table *rates = table(report, "host"), *times = table(report, "host, half a round trip");
  EXPECT_EQ(number(rates, "8 B", "bytes"), 8);
  EXPECT_EQ(number(rates, "1 MiB", "plugin"), 10);
  EXPECT_EQ(number(rates, "1 MiB", "pipeline / plugin"), 0.9);
  EXPECT_EQ(number(rates, "8 B", "pipeline"), -1);  // it has no such row
  EXPECT_EQ(number(rates, "8 B", "pipeline / plugin"), -1);
  EXPECT_EQ(number(times, "8 B", "pipeline"), 15);
  EXPECT_EQ(number(times, "8 B", "pipeline / plugin"), 1.25);
  const Table* costs = table(report, "host, per core-second");
  EXPECT_EQ(number(costs, "1 MiB", "plugin"), 4);
  EXPECT_EQ(number(costs, "8 B", "plugin"), -1);  // not known
}

TEST(Comparison, LeavesOutWhatWasNotMeasured) {
  EXPECT_TRUE(report_of(section(), {}).tables.empty());
  std::vector<MeasuredRun> runs = example();
  runs[0] = run("plugin", 4, {});
  const Report report = report_of(section(), runs);
  EXPECT_EQ(number(table(report, "host"), "1 MiB", "pipeline"), 9);
  EXPECT_EQ(table(report, "host")->columns.size(), 2u) << "no plugin, and nothing divided by it";
}

TEST(Comparison, CountsMessagesWhereTheUnitSaysSo) {
  const Report report =
      report_of({.title = "Small", .one_way = {8}, .unit = "1000/s"}, {run("write", 0, {{8, measured(0.016)}})});
  EXPECT_EQ(number(table(report, "Small"), "8 B", "write"), 2000);
}

TEST(Comparison, TimesAloneKeepTheTitle) {
  const Report report = report_of({.title = "Half a round trip", .ping_pong = {8}}, example());
  ASSERT_EQ(report.tables.size(), 1u);
  EXPECT_EQ(number(table(report, "Half a round trip"), "8 B", "plugin"), 12);
}

TEST(Comparison, OneWrongMessageMakesItsRowUnverified) {
  std::vector<MeasuredRun> runs = example();
  runs[1].one_way[kMiB].mismatch = "1 of 1048576 bytes differ";
  const Report report = report_of(section(), runs);
  EXPECT_TRUE(table(report, "host")->rows[0].verified);
  EXPECT_FALSE(table(report, "host")->rows[1].verified);
  EXPECT_FALSE(table(report, "host, per core-second")->rows[1].verified);
  EXPECT_TRUE(table(report, "host, half a round trip")->rows[0].verified);
}

TEST(MeasuredRuns, TheBestOfEachSizeCounts) {
  const std::vector<MeasuredRun> runs = {run("", 1, {{8, measured(0.25)}, {kMiB, measured(5)}}, {{8, measured(8)}}),
                                         run("", 4, {{8, measured(0.125)}, {kMiB, measured(10)}}, {{8, measured(12)}})};
  const MeasuredBy rates = best_of(runs, &MeasuredRun::one_way, true), times = best_of(runs, &MeasuredRun::ping_pong, false);
  EXPECT_EQ(rates.at(8), measured(0.25));
  EXPECT_EQ(rates.at(kMiB), measured(10));
  EXPECT_EQ(times.at(8), measured(8));
  EXPECT_TRUE(best_of({}, &MeasuredRun::one_way, true).empty());
}

TEST(MeasuredRuns, StandBesideEachOtherByTheirSockets) {
  const std::vector<MeasuredRun> runs = {run("", 1, {{kMiB, measured(5)}}), run("", 4, {{kMiB, measured(10)}}),
                                         run("", 8, {{8, measured(1)}})};
  EXPECT_EQ(by_sockets(runs, kMiB), (MeasuredBy{{1, measured(5)}, {4, measured(10)}}));
  const Table table = make_table(By::kSockets, "sockets", "GB/s", {{"host", by_sockets(runs, kMiB)}});
  EXPECT_EQ(number(&table, "1 socket", "host"), 5);
  EXPECT_EQ(number(&table, "4 sockets", "sockets"), 4);
}

TEST(Comparison, TellsTheFirstWrongBytes) {
  const std::atomic<bool> stop = false;
  Comparison comparison(ComparisonOptions(200), stop);
  comparison.compared("host, 1 socket, 8 B one way", measured(1));
  EXPECT_EQ(comparison.mismatch(), "");
  for (const char* bytes : {"1 of 8 bytes differ", "7 of 8 bytes differ"}) {
    comparison.compared("gpu, 4 sockets, 8 B one way", {.summary = {5, 1, 1, 1}, .mismatch = bytes});
  }
  EXPECT_EQ(comparison.mismatch(), "gpu, 4 sockets, 8 B one way: 1 of 8 bytes differ");
}

}  // namespace
}  // namespace tcpx
