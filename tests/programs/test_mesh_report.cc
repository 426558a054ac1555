#include "programs/mesh/mesh_report.h"

#include <gtest/gtest.h>

#include <string>

namespace tcpx::mesh {
namespace {

/// Three ranks: 0 -> 1 and 1 -> 2 measured, 2 -> 0 failed, the others not in the schedule.
MeshResults example_results() {
  MeshResults results{.ranks = {"host-a GPU 0", "host-a GPU 1", "host-b GPU 0"}, .parameters = {{"size", "16 MiB"}}};
  results.outcome.pairs = {{{0, 1}, PairResult{10, true}},
                           {{1, 2}, PairResult{4, true}},
                           {{2, 0}, Status(Code::kPeerGone, "send", "connection reset")}};
  return results;
}

TEST(MeshReport, TheMatrixHasEachRateAtItsPair) {
  const Report report = mesh_report(example_results());
  ASSERT_TRUE(check_report(report).is_ok()) << check_report(report).to_string();
  ASSERT_EQ(report.tables.size(), 3u);
  const Table& matrix = report.tables[0];
  ASSERT_EQ(matrix.rows.size(), 3u);
  EXPECT_EQ(matrix.rows[0].name, "0 host-a GPU 0");
  EXPECT_EQ(matrix.rows[0].cells, (std::vector<Cell>{Cell(), 10.0, Cell()}));
  EXPECT_EQ(matrix.rows[1].cells, (std::vector<Cell>{Cell(), Cell(), 4.0}));
  EXPECT_EQ(matrix.rows[2].cells, (std::vector<Cell>{std::string("failed"), Cell(), Cell()}));
  EXPECT_TRUE(matrix.rows[0].verified && matrix.rows[1].verified);
  EXPECT_FALSE(matrix.rows[2].verified);
}

TEST(MeshReport, TheSummaryNamesTheSlowestPair) {
  const Table summary = mesh_report(example_results()).tables[1];
  ASSERT_EQ(summary.rows.size(), 1u);
  EXPECT_EQ(summary.rows[0].name, "2 of 3 pairs");
  EXPECT_EQ(summary.rows[0].cells, (std::vector<Cell>{4.0, 7.0, 10.0, std::string("1 -> 2")}));
  EXPECT_FALSE(summary.rows[0].verified) << "not of every pair";
}

TEST(MeshReport, FailuresHaveTheirReason) {
  const Table failures = mesh_report(example_results()).tables[2];
  ASSERT_EQ(failures.rows.size(), 1u);
  EXPECT_EQ(failures.rows[0].name, "2 -> 0");
  EXPECT_EQ(failures.rows[0].cells.at(0), Cell(std::string("TCPX_E_PEER_GONE: send: connection reset")));
  MeshResults good = example_results();
  good.outcome.pairs.pop_back();
  EXPECT_EQ(mesh_report(good).tables.size(), 2u) << "without failures there is no such table";
}

TEST(MeshReport, UnverifiedDataSaysSo) {
  MeshResults results = example_results();
  results.outcome.pairs = {{{0, 1}, PairResult{10, false}}};
  const Report report = mesh_report(results);
  for (const Table& table : report.tables) EXPECT_FALSE(table.rows[0].verified) << table.title;
}

TEST(MeshReport, AMeshOfTheMostRanksFitsIntoOneReport) {
  const auto rounds = make_schedule(kMostRanks, MeshMode::kPairs, 0, true);
  for (const bool fails : {false, true}) {
    MeshResults results;
    for (int i = 0; i < kMostRanks; ++i)
      results.ranks.push_back("a-host-with-a-rather-long-name-" + std::to_string(i) + " GPU 0");
    for (const Round& round : *rounds) {
      for (const Pair& pair : round) {
        const Status failure(Code::kTimeout, "send", std::string(1000, 'x'));
        results.outcome.pairs.push_back(
            {pair, fails ? Result<PairResult>(failure) : Result<PairResult>(PairResult{1.0 / (pair.sender + 3), true})});
      }
    }
    const Report report = mesh_report(results);
    const auto json = report_json(report);
    ASSERT_TRUE(json.is_ok()) << json.status().to_string();
    const auto read = parse_report(*json);
    ASSERT_TRUE(read.is_ok()) << read.status().to_string();
    EXPECT_EQ(*read, report);
    EXPECT_TRUE(report_text(report).is_ok());
    ASSERT_EQ(report.tables.size(), fails ? 3u : 2u);
    if (!fails) continue;
    EXPECT_EQ(report.tables[2].rows.back().name, std::to_string(kMostRanks * (kMostRanks - 1) - 100) + " others");
  }
}

TEST(MeshReport, TheVerdictIsGoodOnlyWhenEveryPairIs) {
  MeshOutcome outcome = example_results().outcome;
  const Status failed = mesh_verdict(outcome, 3);
  EXPECT_EQ(failed.code(), Code::kPeerGone);
  EXPECT_EQ(failed.detail(), "2 of 3 pairs measured; the first that failed is 2 -> 0");
  outcome.pairs.pop_back();
  EXPECT_TRUE(mesh_verdict(outcome, 2).is_ok());
  outcome.interrupted = true;
  EXPECT_EQ(mesh_verdict(outcome, 6).detail(), "2 of 6 pairs measured");
}

}  // namespace
}  // namespace tcpx::mesh
