// The report of test_tcpx_perf.
#include "programs/perf/perf_report.h"

#include <gtest/gtest.h>

namespace tcpx::perf {
namespace {

PerfRow row_of(uint64_t bytes, double us) {
  const double rate = static_cast<double>(bytes) / us / 1e3;
  return {.bytes = bytes, .time = {5, us, us, us}, .average_us = us, .gb_per_second = rate, .nics = {{"eth1", rate}}};
}

Report report_of(PerfMode mode) {
  const TableHead head{.version = "1", .mode = mode, .server = "s", .client = "c", .nics = {"eth1"}, .channels = 1};
  return make_perf_report(head, {row_of(4096, 100), row_of(8192, 100)}, "ncclNetPlugin_v7", {"a plugin"});
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

}  // namespace
}  // namespace tcpx::perf
