#include "programs/compare/measured_run.h"

#include <set>

#include "base/text.h"
#include "measure/plain_text.h"

namespace tcpx {
namespace {

Cell cell_of(const Measured& measured, uint64_t bytes, Show show) {
  Summary summary = measured.summary;
  if (show == Show::kThousandMessages) {
    for (double* const value : {&summary.min, &summary.median, &summary.max}) *value *= 1e6 / static_cast<double>(bytes);
  }
  if (show != Show::kPerCoreSecond) return summary;
  if (measured.gigabytes_per_core_second > 0) return measured.gigabytes_per_core_second;
  return {};
}

}  // namespace

MeasuredBy best_of(const std::vector<MeasuredRun>& runs, MeasuredBy MeasuredRun::*what, bool higher_is_better) {
  MeasuredBy best;
  for (const MeasuredRun& run : runs) {
    for (const auto& [key, measured] : run.*what) {
      const auto [place, is_first] = best.try_emplace(key, measured);
      const double difference = measured.summary.median - place->second.summary.median;
      if (!is_first && (higher_is_better ? difference > 0 : difference < 0)) place->second = measured;
    }
  }
  return best;
}

std::vector<Line> lines_of(const std::vector<MeasuredRun>& runs, MeasuredBy MeasuredRun::*what) {
  std::vector<Line> lines;
  for (const MeasuredRun& run : runs) lines.push_back({run.name, run.*what});
  return lines;
}

MeasuredBy by_sockets(const std::vector<MeasuredRun>& runs, uint64_t bytes) {
  MeasuredBy values;
  for (const MeasuredRun& run : runs) {
    if (const auto found = run.one_way.find(bytes); found != run.one_way.end()) values.emplace(run.sockets, found->second);
  }
  return values;
}

Table make_table(By by, std::string title, const std::string& unit, std::vector<Line> lines, Show show) {
  std::erase_if(lines, [](const Line& line) { return line.values.empty(); });
  const bool by_size = by == By::kSize;
  Table table{.title = std::move(title),
              .row_heading = by_size ? "message" : "data sockets",
              .columns = {by_size ? Column{"bytes", "B"} : Column{"sockets", ""}},
              .rows = {}};
  std::set<uint64_t> keys;
  for (const Line& line : lines) {
    table.columns.push_back({line.name, unit});
    for (const auto& [key, value] : line.values) keys.insert(key);
  }
  for (const uint64_t key : keys) {
    Row row{.name = by_size ? format_bytes(key) : counted(key, "socket"), .cells = {static_cast<double>(key)}, .verified = true};
    for (const Line& line : lines) {
      const auto found = line.values.find(key);
      Cell& cell = row.cells.emplace_back();
      if (found == line.values.end()) continue;
      cell = cell_of(found->second, key, show);
      row.verified &= found->second.verified();
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string counted(uint64_t count, const char* what) {
  return concat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace tcpx
