#include "programs/unpack/unpack_report.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "measure/report.h"

namespace tcpx::bench {
namespace {

const Table* find_table(const Report& report, std::string_view title) {
  const auto found = std::find_if(report.tables.begin(), report.tables.end(), [&](const Table& t) { return t.title == title; });
  return found == report.tables.end() ? nullptr : &*found;
}

}  // namespace

Report make_unpack_report(const std::string& device, const UnpackBenchOptions& options) {
  Report report;
  report.key = "bench_unpack";
  report.about =
      "Gathers fragments that lie permuted in a pool into one destination, and compares every gathered byte. GB/s counts the "
      "gathered "
      "bytes once (memory reads and writes each as many). Times are GPU times between two events on an idle GPU around the copy "
      "call "
      "or the kernel launch, unless a table says otherwise; d2d and host are timed by the host's clock, from submit to done. The "
      "tcpx kernel reads its list of fragments from mapped pinned host memory, the other kernels from device memory.";
  report.devices = {device};
  report.parameters = {
      {"bytes", concat(options.bytes)}, {"pool bytes", concat(options.pool_bytes)}, {"samples", concat(options.samples)}};
  return report;
}

Status add_with_ratios(Report& report, Table table) {
  const bool has_ceiling = table.row_heading == "method" && table.rows.size() > 1;
  report.tables.push_back(std::move(table));
  if (!has_ceiling) return Status::ok();
  const Table& measured = report.tables.back();
  TCPX_ASSIGN_OR_RETURN(Table ratios,
                        ratio_table(measured, measured.rows.front().name, measured.title + ": ratio to the contiguous copy"));
  report.tables.push_back(std::move(ratios));
  return Status::ok();
}

std::vector<std::string> unpack_notes(const Report& report) {
  std::vector<std::string> notes;
  const Table* table = find_table(report, "By method");
  if (table == nullptr) return notes;
  const auto rate = [&](std::string_view method, size_t column) {
    for (const Row& row : table->rows) {
      if (row.name == method) return number_in(row.cells[column]).value_or(0);
    }
    return 0.0;
  };
  for (size_t i = 0; i < table->columns.size(); ++i) {
    std::string note = unpack_note(table->columns[i].name, {"kernel", rate("tcpx kernel", i)}, {"d2d", rate("tcpx d2d", i)});
    if (!note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace tcpx::bench
