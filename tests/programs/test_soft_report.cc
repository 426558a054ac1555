// The tables and ratios of bench_soft_plugin, from results made up here.
#include "programs/compare/soft_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "programs/compare/comparison.h"

namespace tcpx {
namespace {

constexpr uint64_t kMiB = 1 << 20;

Measured measured(double median, double per_core_second = 0) {
  return {.summary = {5, median, median, median}, .gigabytes_per_core_second = per_core_second, .mismatch = ""};
}

SoftResults example() {
  SoftResults results;
  results.plugin = {
      {.name = "host", .sockets = 1, .one_way = {{8, measured(0.25)}, {kMiB, measured(5, 2)}}, .ping_pong = {{8, measured(8)}}},
      {.name = "host",
       .sockets = 4,
       .one_way = {{8, measured(0.125)}, {kMiB, measured(10, 4)}},
       .ping_pong = {{8, measured(12)}}},
      {.name = "gpu", .sockets = 4, .one_way = {{8, measured(0.0625)}, {kMiB, measured(6)}}, .ping_pong = {{8, measured(21)}}}};
  results.pipeline = {
      {.name = "host", .sockets = 1, .one_way = {{kMiB, measured(4, 1)}}, .ping_pong = {{8, measured(10)}}},
      {.name = "host", .sockets = 4, .one_way = {{8, measured(0.1)}, {kMiB, measured(9, 3)}}, .ping_pong = {{8, measured(15)}}},
      {.name = "host", .sockets = 4, .channels = 2, .one_way = {{kMiB, measured(12, 3.5)}}, .ping_pong = {{8, measured(18)}}},
      {.name = "gpu", .sockets = 8, .one_way = {{kMiB, measured(7)}}, .ping_pong = {{8, measured(24)}}}};
  results.unpack = {{.name = "kernel", .one_way = {{kMiB, measured(6)}}},
                    {.name = "d2d", .one_way = {{kMiB, measured(4)}, {2 * kMiB, measured(5)}}}};
  results.long_transfers = {{.name = "host", .one_way = {{1, measured(1)}, {2048, measured(2)}}}};
  results.long_transfers[0].one_way[2048].resident_growth_bytes = 4096;
  results.long_chunk_bytes = 512 * 1024;
  results.raw_in_cache = {{1, measured(6)}, {4, measured(20)}};
  results.raw_working_set = {{1, measured(5)}, {4, measured(12.5)}};
  results.raw_ping_pong = {{8, measured(4)}};
  results.raw_message_bytes = 64 * kMiB;
  results.nccl = {{.name = "default", .one_way = {{kMiB, measured(2)}}, .ping_pong = {{8, measured(30)}}},
                  {.name = "tuned", .one_way = {{kMiB, measured(3)}}, .ping_pong = {{8, measured(40)}}}};
  return results;
}

Report report_of(const SoftResults& results) {
  Report report{.key = "bench_soft_plugin", .about = "a test"};
  add_soft_tables(results, report);
  return report;
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
  const Report report = report_of(example());
  EXPECT_TRUE(check_report(report).is_ok()) << check_report(report).to_string();
  EXPECT_TRUE(report_text(report).is_ok());
}

TEST(SoftReport, HasAColumnPerNumberOfSockets) {
  const Report report = report_of(example());
  const Table* host = table(report, "One way, host");
  EXPECT_EQ(number(host, "8 B", "1 socket"), 0.25);
  EXPECT_EQ(number(host, "1 MiB", "4 sockets"), 10);
  EXPECT_EQ(number(table(report, "Half a round trip, gpu"), "8 B", "4 sockets"), 21);
  EXPECT_EQ(number(table(report, "Per core-second, one way, host"), "1 MiB", "4 sockets"), 4);
  EXPECT_EQ(number(table(report, "Per core-second, one way, host"), "8 B", "4 sockets"), -1);  // not known
}

TEST(SoftReport, ComparesTheBestOfEach) {
  const Report report = report_of(example());
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
  const Report report = report_of(example());
  const Table* sockets = table(report, "One way by data sockets");
  EXPECT_EQ(number(sockets, "1 socket", "host"), 5);
  EXPECT_EQ(number(sockets, "1 socket", "gpu"), -1);
  EXPECT_EQ(number(sockets, "1 socket", "host / raw TCP, 64 MiB"), 1);
  EXPECT_EQ(number(sockets, "4 sockets", "host / raw TCP, in cache"), 0.5);
  EXPECT_EQ(number(sockets, "4 sockets", "gpu"), 6);
}

TEST(SoftReport, ComparesThePipelineWithTheBarePluginOverAsManySockets) {
  const Report report = report_of(example());
  EXPECT_EQ(number(table(report, "Pipeline, one way, host"), "1 MiB", "4 sockets"), 9);
  EXPECT_EQ(number(table(report, "Pipeline, half a round trip, gpu"), "8 B", "8 sockets"), 24);
  EXPECT_EQ(number(table(report, "Pipeline, per core-second, one way, host"), "1 MiB", "1 socket"), 1);
  const Table* ratio = table(report, "Pipeline / plugin, one way, host");
  EXPECT_EQ(number(ratio, "1 MiB", "1 socket"), 0.8);
  EXPECT_EQ(number(ratio, "1 MiB", "4 sockets"), 0.9);
  EXPECT_EQ(number(ratio, "8 B", "1 socket"), -1);  // the pipeline has no such row
  EXPECT_EQ(number(table(report, "Pipeline / plugin, half a round trip, host"), "8 B", "4 sockets"), 1.25);
  EXPECT_EQ(table(report, "Pipeline / plugin, one way, gpu"), nullptr);  // the plugin was not driven over 8 sockets
  EXPECT_EQ(number(table(report, "One way, the best of each"), "1 MiB", "host pipeline"), 9);
  EXPECT_EQ(number(table(report, "Half a round trip, the best of each"), "8 B", "host pipeline"), 10);
  EXPECT_EQ(number(table(report, "One way by data sockets"), "4 sockets", "host pipeline / raw TCP, in cache"), 0.45);
}

TEST(SoftReport, TellsChannelsApart) {
  const Report report = report_of(example());
  EXPECT_EQ(number(table(report, "Pipeline, one way, host"), "1 MiB", "4 sockets"), 9);
  EXPECT_EQ(number(table(report, "Pipeline, one way, host"), "1 MiB", "2 channels x 2 sockets"), 12);
  EXPECT_EQ(number(table(report, "Pipeline, half a round trip, host"), "8 B", "2 channels x 2 sockets"), 18);
  EXPECT_EQ(number(table(report, "Pipeline, per core-second, one way, host"), "1 MiB", "2 channels x 2 sockets"), 3.5);
  const Table* ratio = table(report, "Pipeline / plugin, one way, host");
  EXPECT_EQ(number(ratio, "1 MiB", "2 channels x 2 sockets"), 1.2);  // of the plugin over 4 sockets
  EXPECT_EQ(number(table(report, "One way, the best of each"), "1 MiB", "host pipeline"), 9);
  EXPECT_EQ(number(table(report, "One way, the best of each"), "1 MiB", "host pipeline, 2 channels"), 12);
  const Table* sockets = table(report, "One way by data sockets");
  EXPECT_EQ(number(sockets, "4 sockets", "host pipeline"), 9);
  EXPECT_EQ(number(sockets, "4 sockets", "host pipeline, 2 channels"), 12);
  EXPECT_EQ(number(sockets, "1 socket", "host pipeline, 2 channels"), -1);
}

TEST(SoftReport, HasTablesOfAPipelineWithoutABarePlugin) {
  SoftResults results;  // more sockets than one connection of the plugin takes
  results.pipeline = {{.name = "host", .sockets = 32, .channels = 4, .one_way = {{kMiB, measured(20)}}, .ping_pong = {}}};
  const Report report = report_of(results);
  EXPECT_EQ(number(table(report, "Pipeline, one way, host"), "1 MiB", "4 channels x 8 sockets"), 20);
  EXPECT_EQ(number(table(report, "One way by data sockets"), "32 sockets", "host pipeline, 4 channels"), 20);
}

TEST(SoftReport, SaysHowManySocketsAChannelHas) {
  EXPECT_EQ(sockets_text(1), "1 socket");
  EXPECT_EQ(sockets_text(8), "8 sockets");
  EXPECT_EQ(sockets_text(4, 4), "4 channels x 1 socket");
  EXPECT_EQ(sockets_text(8, 4), "4 channels x 2 sockets");
}

TEST(SoftReport, PutsUnpackersSideBySide) {
  const Report report = report_of(example());
  const Table* unpackers = table(report, "Pipeline by unpacker, one way");
  EXPECT_EQ(number(unpackers, "1 MiB", "kernel"), 6);
  EXPECT_EQ(number(unpackers, "2 MiB", "d2d"), 5);
  EXPECT_EQ(number(unpackers, "1 MiB", "kernel / d2d"), 1.5);
  EXPECT_EQ(number(unpackers, "2 MiB", "kernel / d2d"), -1);
}

TEST(SoftReport, TellsWhatAChunkOfALongTransferCosts) {
  const Report report = report_of(example());
  const Table* transfers = table(report, "Long transfers, host");
  EXPECT_EQ(number(transfers, "2048", "bytes"), 1024.0 * kMiB);
  EXPECT_EQ(number(transfers, "2048", "one way"), 2);
  EXPECT_EQ(number(transfers, "2048", "a chunk"), 262.144);  // 512 KiB at 2 GB/s
  EXPECT_EQ(number(transfers, "2048", "more memory in core"), 4);
  EXPECT_EQ(number(transfers, "1", "a chunk"), 524.288);
}

TEST(SoftReport, LeavesOutWhatWasNotMeasured) {
  SoftResults results = example();
  results.pipeline.clear();
  results.unpack.clear();
  results.long_transfers.clear();
  results.nccl.clear();
  results.raw_in_cache.clear();
  results.raw_working_set.clear();
  results.plugin.pop_back();
  const Report report = report_of(results);
  EXPECT_TRUE(check_report(report).is_ok()) << check_report(report).to_string();
  EXPECT_EQ(table(report, "One way, gpu"), nullptr);
  EXPECT_EQ(table(report, "One way, NCCL"), nullptr);
  EXPECT_EQ(number(table(report, "One way, the best of each"), "1 MiB", "NCCL"), -1);
  EXPECT_EQ(table(report, "One way by data sockets")->columns.size(), 2u);
  EXPECT_TRUE(report_of({}).tables.empty());
}

TEST(SoftReport, OneWrongMessageMakesItsRowsUnverified) {
  SoftResults results = example();
  results.plugin[1].one_way[kMiB].mismatch = "1 of 1048576 bytes differ";
  const Report report = report_of(results);
  EXPECT_TRUE(table(report, "One way, host")->rows[0].verified);
  EXPECT_FALSE(table(report, "One way, host")->rows[1].verified);
  EXPECT_FALSE(table(report, "One way, the best of each")->rows[1].verified);
  EXPECT_FALSE(table(report, "One way by data sockets")->rows[1].verified);
  EXPECT_TRUE(table(report, "One way, gpu")->rows[1].verified);
}

TEST(SoftReport, MakesTheRowsOfWhatWasWrongUnverified) {
  const Measured wrong{.summary = {5, 1, 1, 1}, .gigabytes_per_core_second = 0, .mismatch = "wrong"};
  SoftResults results = example();
  results.pipeline[0].one_way[kMiB] = wrong;
  EXPECT_FALSE(table(report_of(results), "Pipeline / plugin, one way, host")->rows[1].verified);
  results = example();
  results.long_transfers[0].one_way[2048] = wrong;
  EXPECT_FALSE(table(report_of(results), "Long transfers, host")->rows[1].verified);
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
