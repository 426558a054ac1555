#include "programs/mesh/mesh_report.h"

#include <algorithm>

#include "base/text.h"

namespace tcpx::mesh {
namespace {

constexpr char kAbout[] =
    "How fast each rank sends to each other one. Timed are transfers moved back to back over one connection, from both ends "
    "being "
    "ready to the last byte being in place at the receiver; GB are 1e9 bytes of payload, counted once. Every byte is compared "
    "outside the timed part.";

// One rank that is lost fails many pairs, all for the same reason.
constexpr size_t kMostReasons = 100;

std::string name_of(const Pair& pair) {
  return concat(pair.sender, " -> ", pair.receiver);
}

std::string reason_of(const PairOutcome& outcome) {
  return outcome.result.status().to_string();
}

std::vector<PairOutcome> measured(const MeshOutcome& outcome) {
  std::vector<PairOutcome> pairs;
  std::copy_if(outcome.pairs.begin(), outcome.pairs.end(), std::back_inserter(pairs),
               [](const PairOutcome& pair) { return pair.result.is_ok(); });
  return pairs;
}

bool all_verified(const std::vector<PairOutcome>& pairs) {
  return std::all_of(pairs.begin(), pairs.end(),
                     [](const PairOutcome& pair) { return pair.result.is_ok() && pair.result->verified; });
}

Table matrix(const MeshResults& results) {
  const size_t count = results.ranks.size();
  Table table{.title = "GB/s from the rank of the row to the rank of the column", .row_heading = "sender"};
  for (size_t i = 0; i < count; ++i) {
    table.columns.push_back({concat(i), ""});
    table.rows.push_back({concat(i, " ", results.ranks[i]), std::vector<Cell>(count), true});
  }
  for (const PairOutcome& outcome : results.outcome.pairs) {
    Row& row = table.rows[static_cast<size_t>(outcome.pair.sender)];
    Cell& cell = row.cells[static_cast<size_t>(outcome.pair.receiver)];
    if (outcome.result.is_ok()) {
      cell = outcome.result->gigabytes_per_second;
    } else {
      cell = std::string("failed");
    }
    row.verified = row.verified && outcome.result.is_ok() && outcome.result->verified;
  }
  // A row of which nothing was measured has nothing that was compared.
  for (Row& row : table.rows) {
    row.verified = row.verified &&
                   std::any_of(row.cells.begin(), row.cells.end(), [](const Cell& cell) { return number_in(cell).has_value(); });
  }
  return table;
}

Table summary(const MeshOutcome& outcome) {
  const std::vector<PairOutcome> good = measured(outcome);
  Row row{concat(good.size(), " of ", outcome.pairs.size(), " pairs"), {}, !outcome.pairs.empty() && all_verified(outcome.pairs)};
  std::vector<double> rates;
  for (const PairOutcome& pair : good) rates.push_back(pair.result->gigabytes_per_second);
  if (const auto samples = Samples::create(rates); samples.is_ok()) {
    const auto slower = [](const PairOutcome& a, const PairOutcome& b) {
      return a.result->gigabytes_per_second < b.result->gigabytes_per_second;
    };
    row.cells = {samples->min(), samples->median(), samples->max(),
                 name_of(std::min_element(good.begin(), good.end(), slower)->pair)};
  }
  row.cells.resize(4);
  return {"summary", "measured", {{"min", "GB/s"}, {"median", "GB/s"}, {"max", "GB/s"}, {"slowest", ""}}, {row}};
}

Table failures(const MeshOutcome& outcome) {
  Table table{.title = "failed pairs", .row_heading = "pair", .columns = {{"reason", ""}}};
  size_t others = 0;
  for (const PairOutcome& pair : outcome.pairs) {
    if (pair.result.is_ok()) continue;
    if (table.rows.size() < kMostReasons) {
      table.rows.push_back({name_of(pair.pair), {reason_of(pair)}, false});
    } else {
      ++others;
    }
  }
  if (others > 0) table.rows.push_back({concat(others, " others"), {std::string("failed, too")}, false});
  return table;
}

}  // namespace

Report mesh_report(const MeshResults& results) {
  Report report{.key = "p2p_fullmesh", .about = kAbout};
  for (size_t i = 0; i < results.ranks.size(); ++i) report.devices.push_back(concat("rank ", i, ": ", results.ranks[i]));
  report.parameters = results.parameters;
  report.tables = {matrix(results), summary(results.outcome)};
  if (Table table = failures(results.outcome); !table.rows.empty()) report.tables.push_back(std::move(table));
  return report;
}

Status mesh_verdict(const MeshOutcome& outcome, size_t planned_pairs) {
  const size_t good = measured(outcome).size();
  const std::string count = concat(good, " of ", planned_pairs, " pairs measured");
  if (outcome.interrupted) return {Code::kCancelled, "mesh", count};
  for (const PairOutcome& pair : outcome.pairs) {
    if (pair.result.is_ok()) continue;
    return {pair.result.status().code(), "mesh", concat(count, "; the first that failed is ", name_of(pair.pair))};
  }
  return Status::ok();
}

}  // namespace tcpx::mesh
