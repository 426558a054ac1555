// Numbers and texts of test_tcpx_perf: sizes, rounds, rows, the table, the report.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "measure/message_plan.h"
#include "programs/perf/perf_report.h"

namespace tcpx::perf {
namespace {

using Sizes = std::vector<uint64_t>;

TEST(SizeSweep, GoesFromTheFirstToTheLastSize) {
  EXPECT_EQ(sizes_of({8, 8, 2}), (Sizes{8}));
  EXPECT_EQ(sizes_of({8, 63, 2}), (Sizes{8, 16, 32}));
  EXPECT_EQ(sizes_of({1, 1000, 10}), (Sizes{1, 10, 100, 1000}));
  EXPECT_EQ(sizes_of({SizeSweep::kMaxBytes, SizeSweep::kMaxBytes, 1u << 20}), (Sizes{SizeSweep::kMaxBytes}));
  EXPECT_EQ(sizes_of({1, SizeSweep::kMaxBytes, 2}).size(), 41u);
}

TEST(SizeSweep, SlotsFillTheRoomUpToTheirMost) {
  EXPECT_EQ(slot_stride(1), 4096u);
  EXPECT_EQ(slot_stride(4096), 4096u);
  EXPECT_EQ(slot_stride(4097), 8192u);
  EXPECT_EQ(slots_in(512u << 20, 8), kMaxSlots);
  EXPECT_EQ(slots_in(512u << 20, 64u << 20), 8u);
  EXPECT_EQ(slots_in(512u << 20, 65u << 20), 7u);
  EXPECT_EQ(slots_in(512u << 20, uint64_t{16} << 30), 1u) << "one even where it is more than the room";
  // Memory of messages with so many slots is never more than the room, which a plugin registers at once.
  constexpr uint64_t kRoom = (uint64_t{2} << 30) - kPageBytes;
  for (uint64_t mib = 1; mib <= 1024; ++mib) {
    const MessagePlan plan = MessagePlan(mib << 20, 512 << 10).with_slots(slots_in(kRoom, mib << 20));
    EXPECT_LE(plan.receive_memory_bytes(), kRoom) << mib << " MiB";
  }
}

TEST(EndRow, SumsUpItsTimes) {
  EndRow row;
  set_times(row, {30, 10, 20, 100});
  EXPECT_EQ(row.count, 4u);
  EXPECT_EQ(row.total_ns, 160u);
  EXPECT_EQ(row.min_ns, 10u);
  EXPECT_EQ(row.median_ns, 25u);
  EXPECT_EQ(row.max_ns, 100u);
  set_times(row, {7, 9, 8});
  EXPECT_EQ(row.median_ns, 8u);
  set_times(row, {});
  EXPECT_EQ(row.count + row.total_ns + row.max_ns, 0u);
}

TEST(EndRow, ATailIsSaidOnlyWhenEnoughWasSeen) {
  const auto row_of = [](uint64_t count) {
    std::vector<uint64_t> samples;
    for (uint64_t i = count; i > 0; --i) samples.push_back(i);
    EndRow row;
    set_times(row, std::move(samples));
    return row;
  };
  EXPECT_EQ(row_of(99).p99_ns, 0u);
  EXPECT_EQ(row_of(100).p99_ns, 99u);
  EXPECT_EQ(row_of(999).p999_ns, 0u);
  EXPECT_EQ(row_of(1000).p99_ns, 990u);
  EXPECT_EQ(row_of(1000).p999_ns, 999u);
  EXPECT_EQ(row_of(2000).p999_ns, 1998u);
  const PerfRow few = make_row(Pattern::kPingPong, 8, row_of(99), row_of(99));
  EXPECT_FALSE(few.p99.has_value() || few.p999.has_value());
  const PerfRow many = make_row(Pattern::kPingPong, 8, row_of(5), row_of(1000));
  EXPECT_DOUBLE_EQ(many.p99.value(), 0.990);
  EXPECT_DOUBLE_EQ(many.p999.value(), 0.999);
}

EndRow example_row() {
  EndRow row;
  set_times(row, {1000, 3000, 2000});
  row.busy_ns = 6000;
  row.cpu_ns = 9000;
  row.nics = {{"eth1", 6000}, {"eth2", 12000}};
  return row;
}

TEST(EndRow, TravelsToThePeerAndBack) {
  EndRow row = example_row();
  row.wrong = 3;
  row.first_wrong = "the first at 7";
  row.verified = false;
  const auto back = decode_row(encode_row(row));
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(*back, row);
}

TEST(EndRow, WhatDoesNotAddUpIsRefusedByName) {
  const Parameters good = encode_row(example_row());
  for (const char* name : {"count", "total ns", "min ns", "median ns", "max ns", "busy ns", "cpu ns", "wrong", "verified",
                           "nic eth1", "p99 ns", "p99.9 ns"}) {
    for (const char* bad : {"", "-1", "1x", " 1", "99999999999999999999"}) {
      Parameters parameters = good;
      parameters[name] = bad;
      const Status status = decode_row(parameters).status();
      EXPECT_EQ(status.code(), Code::kProtocol) << name << '=' << bad;
      EXPECT_NE(status.detail().find(name), std::string::npos) << status.to_string();
    }
  }
  // Text that would play with the terminal.
  Parameters hostile = good;
  hostile["first wrong"] = "\x1b[2J";
  EXPECT_EQ(decode_row(hostile)->first_wrong, ".[2J");
  hostile["nic \x1b[2J"] = "1";
  EXPECT_EQ(decode_row(hostile).status().code(), Code::kProtocol);
  Parameters missing = good;
  missing.erase("count");
  EXPECT_FALSE(decode_row(missing).is_ok());
}

TEST(PerfRow, OneWayTimesAreTheServers) {
  EndRow client = example_row();
  set_times(client, {1, 1, 1});
  client.busy_ns = 4500;
  const PerfRow row = make_row(Pattern::kOneWay, 4000, example_row(), client);
  EXPECT_EQ(row.time, (Summary{3, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(row.average_us, 2);
  EXPECT_DOUBLE_EQ(row.gb_per_second, 2);
  EXPECT_EQ(row.nics, (std::map<std::string, double>{{"eth1", 1}, {"eth2", 2}}));
  EXPECT_DOUBLE_EQ(row.server_cpu, 150);
  EXPECT_DOUBLE_EQ(row.client_cpu, 200);
  EXPECT_TRUE(row.verified);
}

TEST(PerfRow, BothWaysIsTheSlowerTimeAndTheSumOfTheRates) {
  EndRow fast = example_row();
  set_times(fast, {1000, 1000});
  for (const bool server_is_fast : {true, false}) {
    const PerfRow row = server_is_fast ? make_row(Pattern::kBothWays, 4000, fast, example_row())
                                       : make_row(Pattern::kBothWays, 4000, example_row(), fast);
    EXPECT_DOUBLE_EQ(row.average_us, 2);
    EXPECT_DOUBLE_EQ(row.gb_per_second, 4 + 2);
  }
}

TEST(PerfRow, LatencyIsTheClients) {
  EndRow server = example_row();
  set_times(server, {});
  server.wrong = 2;
  server.first_wrong = "at the server";
  const PerfRow row = make_row(Pattern::kPingPong, 8, server, example_row());
  EXPECT_EQ(row.time.count, 3u);
  EXPECT_EQ(row.wrong, 2u);
  EXPECT_EQ(row.first_wrong, "at the server");
}

PerfRow table_row() {
  PerfRow row = make_row(Pattern::kOneWay, 64u << 20, example_row(), example_row());
  row.average_us = 6412.3;
  row.gb_per_second = 10.4657;
  return row;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(RowTable, ColumnsStandBelowTheirHeadings) {
  const TableHead head{.version = "1", .server = "s", .client = "c", .nics = {"eth1", "eth2"}, .channels = 2};
  for (const std::string& line : lines_of(head_lines(head))) EXPECT_EQ(line.front(), '#') << line;
  EXPECT_NE(head_lines(head).find("2 channels over eth1, eth2"), std::string::npos);
  EXPECT_NE(head_lines(head).find("every byte"), std::string::npos);
  const Table table = make_perf_report(head).tables.front();
  const std::string line = row_line(table, report_row(head, table_row()));
  const std::vector<std::string> headings = lines_of(row_headings(table, report_row(head, {})));
  ASSERT_EQ(headings.size(), 2u);
  for (const char* heading : {" bytes", " median", " rate", " rate of eth2", " wrong"}) {
    const size_t end = headings[0].find(heading) + std::string_view(heading).size();
    EXPECT_NE(line[end - 1], ' ') << heading << '\n' << line;
    EXPECT_EQ(line[end], ' ') << heading << '\n' << line;
  }
  EXPECT_EQ(headings[1].find("(us)"), headings[0].find(" min"));
}

TEST(RowTable, ATailThatIsNotKnownIsADash) {
  const TableHead head{.nics = {"eth1", "eth2"}};
  PerfRow row = table_row();
  row.p99 = 41.5;
  const Table table = make_perf_report(head).tables.front();
  EXPECT_NE(row_line(table, report_row(head, row)).find(" 41.5        - "), std::string::npos)
      << row_line(table, report_row(head, row));
  EXPECT_NE(head_lines(head).find("p99.9 1000 (-n)"), std::string::npos) << head_lines(head);
}

TEST(RowTable, UnverifiedIsSaidEverywhere) {
  const TableHead head{.verified = false};
  PerfRow row = table_row();
  row.verified = false;
  EXPECT_NE(head_lines(head).find("UNVERIFIED"), std::string::npos);
  EXPECT_FALSE(report_row(head, row).verified);
  EXPECT_NE(last_line(row).find("unverified"), std::string::npos);
}

TEST(RowTable, TheLastLineIsTheOneThatPeopleGrep) {
  EXPECT_EQ(last_line(table_row()), "[PERF] Avg: 6.412 ms, BW: 10.47 GB/s (64 MiB, the last size)");
}

PerfRow row_of(uint64_t bytes, double us) {
  const double rate = static_cast<double>(bytes) / us / 1e3;
  return {.bytes = bytes, .time = {5, us, us, us}, .average_us = us, .gb_per_second = rate, .nics = {{"eth1", rate}}};
}

Report report_of(Pattern mode) {
  const TableHead head{.version = "1", .asked = {.mode = mode}, .server = "s", .client = "c", .nics = {"eth1"}, .channels = 1};
  Report report = make_perf_report(head);
  for (const uint64_t bytes : {4096, 8192}) report.tables[0].rows.push_back(report_row(head, row_of(bytes, 100)));
  return report;
}

TEST(PerfReport, HoldsEveryRowAndCanBeReadBack) {
  const Report report = report_of(Pattern::kOneWay);
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
  EXPECT_FALSE(report_row({.nics = {"eth1"}}, wrong).verified);
  EXPECT_FALSE(report_row({.nics = {"eth1"}}, unverified).verified);
}

}  // namespace
}  // namespace tcpx::perf
