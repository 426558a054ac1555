#include "measure/report.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "measure/plain_text.h"
#include "tcpx/help.h"

namespace tcpx {
namespace {

Status wrong(const std::string& where, std::string_view what) {
  return {Code::kInvalidArgument, "check report", concat(where, ": ", what)};
}

Status check_name(const std::string& where, const std::string& name, std::set<std::string>* others = nullptr) {
  if (name.empty()) return wrong(where, "is empty");
  if (!is_plain_text(name)) return wrong(where, "is not UTF-8, or holds control characters");
  if (others != nullptr && !others->insert(name).second) return wrong(where, concat("repeats '", name, "'"));
  return Status::ok();
}

Status check_cell(const std::string& where, const Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell); number != nullptr && !std::isfinite(*number)) {
    return wrong(where, "is not a finite number");
  }
  if (const auto* summary = std::get_if<Summary>(&cell); summary != nullptr) {
    const bool finite = std::isfinite(summary->min) && std::isfinite(summary->median) && std::isfinite(summary->max);
    if (!finite) return wrong(where, "is not finite");
    if (summary->count == 0) return wrong(where, "has no samples");
    if (summary->min > summary->median || summary->median > summary->max)
      return wrong(where, "has min, median and max out of order");
  }
  if (const auto* word = std::get_if<std::string>(&cell); word != nullptr) return check_name(where, *word);
  return Status::ok();
}

Status check_table(const std::string& where, const Table& table) {
  TCPX_RETURN_IF_ERROR(check_name(concat(where, ": row heading"), table.row_heading));
  std::set<std::string> columns, rows;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    TCPX_RETURN_IF_ERROR(check_name(concat(where, ": name of column ", i), table.columns[i].name, &columns));
    if (!is_plain_text(table.columns[i].unit)) return wrong(concat(where, ": unit of column ", i), "is not plain text");
  }
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const Row& row = table.rows[i];
    TCPX_RETURN_IF_ERROR(check_name(concat(where, ": name of row ", i), row.name, &rows));
    const std::string here = concat(where, ", row '", row.name, "'");
    if (row.cells.size() != table.columns.size()) {
      return wrong(here, concat("has ", row.cells.size(), " cells for ", table.columns.size(), " columns"));
    }
    for (size_t j = 0; j < row.cells.size(); ++j) {
      TCPX_RETURN_IF_ERROR(check_cell(concat(here, ", column '", table.columns[j].name, "'"), row.cells[j]));
    }
  }
  return Status::ok();
}

Cell divided(const Cell& cell, double reference) {
  const std::optional<double> number = number_in(cell);
  return number ? Cell(*number / reference) : Cell();
}

}  // namespace

std::optional<double> number_in(const Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  if (const auto* summary = std::get_if<Summary>(&cell)) return summary->median;
  return std::nullopt;
}

Status check_report(const Report& report) {
  TCPX_RETURN_IF_ERROR(check_name("key", report.key));
  if (report.key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos) {
    return wrong("key", "has other characters than a-z, 0-9 and _");
  }
  TCPX_RETURN_IF_ERROR(check_name("about", report.about));
  TCPX_RETURN_IF_ERROR(check_name("version", report.version));
  TCPX_RETURN_IF_ERROR(check_name("abi", report.abi));
  for (const std::string& device : report.devices) TCPX_RETURN_IF_ERROR(check_name("name of a device", device));
  for (const auto& [name, value] : report.parameters) {
    TCPX_RETURN_IF_ERROR(check_name("name of a parameter", name));
    TCPX_RETURN_IF_ERROR(check_name(concat("parameter '", name, "'"), value));
  }
  std::set<std::string> titles;
  for (size_t i = 0; i < report.tables.size(); ++i) {
    TCPX_RETURN_IF_ERROR(check_name(concat("title of table ", i), report.tables[i].title, &titles));
    TCPX_RETURN_IF_ERROR(check_table(concat("table '", report.tables[i].title, "'"), report.tables[i]));
  }
  return Status::ok();
}

void add_ratio_column(Table& table, const std::string& over, const std::string& under) {
  const auto column_of = [&](const std::string& name) {
    const auto is_named = [&](const Column& column) { return column.name == name; };
    return static_cast<size_t>(std::find_if(table.columns.begin(), table.columns.end(), is_named) - table.columns.begin());
  };
  const size_t over_idx = column_of(over), under_idx = column_of(under);
  if (over_idx == table.columns.size() || under_idx == table.columns.size()) return;
  table.columns.push_back({concat(over, " / ", under), ""});
  for (Row& row : table.rows) {
    const std::optional<double> below = number_in(row.cells[under_idx]);
    row.cells.push_back(below && *below > 0 ? divided(row.cells[over_idx], *below) : Cell());
  }
}

Result<Table> ratio_table(const Table& table, std::string_view reference, std::string title) {
  TCPX_RETURN_IF_ERROR(check_table(concat("table '", table.title, "'"), table));
  const auto found = std::find_if(table.rows.begin(), table.rows.end(), [&](const Row& row) { return row.name == reference; });
  if (found == table.rows.end()) return Status(Code::kNotFound, "compute ratios", concat("no row '", reference, "'"));
  Table ratios = {std::move(title), table.row_heading, {}, {}};
  for (const Row& row : table.rows) ratios.rows.push_back({row.name, {}, row.verified && found->verified});
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const std::optional<double> one = number_in(found->cells[i]);
    if (!one) continue;
    if (*one <= 0) {
      return Status(Code::kInvalidArgument, "compute ratios",
                    concat("row '", reference, "' has no number above zero in column '", table.columns[i].name, "'"));
    }
    ratios.columns.push_back({table.columns[i].name, ""});
    for (size_t j = 0; j < table.rows.size(); ++j) ratios.rows[j].cells.push_back(divided(table.rows[j].cells[i], *one));
  }
  return ratios;
}

std::string unpack_note(std::string_view what, const UnpackRate& used, const UnpackRate& other) {
  constexpr double kNoticeable = 0.9;
  if (used.gb_per_second >= kNoticeable * other.gb_per_second) return "";
  return concat(what, ": unpack ", used.name, " ", format_measured(used.gb_per_second), " GB/s, ", other.name, " ",
                format_measured(other.gb_per_second), " GB/s", name_in_detail(Hint::kUnpackSlow), ". ",
                help_of(Hint::kUnpackSlow));
}

}  // namespace tcpx
