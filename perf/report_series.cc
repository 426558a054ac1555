#include "perf/report_series.h"

#include <algorithm>

#include "base/text.h"

namespace tcpx {
namespace {

Result<size_t> column_idx(const Table& table, std::string_view name) {
  const auto found = std::find_if(table.columns.begin(), table.columns.end(), [&](const Column& c) { return c.name == name; });
  if (found != table.columns.end()) return static_cast<size_t>(found - table.columns.begin());
  return Status(Code::kNotFound, "make series", concat("no column '", name, "' in table '", table.title, "'"));
}

}  // namespace

Result<ChartSeries> series_of(const Table& table, std::string_view x_column, std::string_view y_column, std::string_view name) {
  const Result<size_t> x_idx = column_idx(table, x_column), y_idx = column_idx(table, y_column);
  if (!x_idx.is_ok()) return x_idx.status();
  if (!y_idx.is_ok()) return y_idx.status();
  ChartSeries series = {std::string(name), {}};
  bool verified = true;
  for (const Row& row : table.rows) {
    if (row.cells.size() < table.columns.size()) {
      return Status(Code::kInvalidArgument, "make series", concat("row '", row.name, "' has too few cells"));
    }
    const auto x = number_in(row.cells[*x_idx]), y = number_in(row.cells[*y_idx]);
    if (!x || !y) continue;
    series.points.push_back({*x, *y});
    verified = verified && row.verified;
  }
  if (!verified) series.name += " (unverified)";
  return series;
}

}  // namespace tcpx
