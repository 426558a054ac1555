// report_json and parse_report: a report as JSON. No other file of this folder knows the JSON library.
//
//   {"format": "tcpx-report-1", "benchmark": "unpack", "about": "...", "version": "0.1.0", "abi": "ncclNetPlugin_v7",
//    "devices": ["..."], "parameters": {"bytes": "67108864"},
//    "tables": [{"title": "...", "row_heading": "method", "columns": [{"name": "...", "unit": "GB/s"}],
//                "rows": [{"name": "kernel", "verified": true,
//                          "values": {"<column>": {"count": 5, "min": 1.0, "median": 2.0, "max": 3.0}, or a number, a string,
//                          null}}]}]}
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "measure/report.h"
#include "measure/result_file.h"

namespace tcpx {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kFormat[] = "tcpx-report-1";

Status check_size(const char* operation, std::string_view text) {
  if (text.size() <= kMaxReportBytes) return Status::ok();
  return {Code::kInvalidArgument, operation, concat(text.size(), " bytes, at most ", kMaxReportBytes, " are allowed")};
}

ordered_json to_json(const Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  if (const auto* summary = std::get_if<Summary>(&cell)) {
    return {{"count", summary->count}, {"min", summary->min}, {"median", summary->median}, {"max", summary->max}};
  }
  if (const auto* word = std::get_if<std::string>(&cell)) return *word;
  return nullptr;
}

ordered_json to_json(const Table& table) {
  ordered_json columns = ordered_json::array(), rows = ordered_json::array();
  for (const Column& column : table.columns) columns.push_back({{"name", column.name}, {"unit", column.unit}});
  for (const Row& row : table.rows) {
    ordered_json values = ordered_json::object();
    for (size_t i = 0; i < row.cells.size(); ++i) values[table.columns[i].name] = to_json(row.cells[i]);
    rows.push_back({{"name", row.name}, {"verified", row.verified}, {"values", std::move(values)}});
  }
  return {{"title", table.title}, {"row_heading", table.row_heading}, {"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

/// Thrown and caught in this file: a field that is missing or of another kind.
struct Malformed {
  std::string detail;
};

template <class Value>
Value field(const json& object, const std::string& name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end()) throw Malformed{concat("'", name, "' is missing")};
  try {
    return found->get<Value>();
  } catch (const json::exception& error) {
    throw Malformed{concat("'", name, "': ", error.what())};
  }
}

json array_in(const json& object, const std::string& name) {
  return field<json::array_t>(object, name);
}

Cell read_cell(const json& values, const std::string& column) {
  const json value = field<json>(values, column);
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.get<double>();
  if (!value.contains("count") || !value["count"].is_number_unsigned()) {
    throw Malformed{concat("'", column, "' must be a number, a string, null or samples")};
  }
  return Summary{value["count"].get<size_t>(), field<double>(value, "min"), field<double>(value, "median"),
                 field<double>(value, "max")};
}

Table read_table(const json& value) {
  Table table = {field<std::string>(value, "title"), field<std::string>(value, "row_heading"), {}, {}};
  for (const json& column : array_in(value, "columns")) {
    table.columns.push_back({field<std::string>(column, "name"), field<std::string>(column, "unit")});
  }
  for (const json& row : array_in(value, "rows")) {
    const json values = field<json>(row, "values");
    std::vector<Cell> cells;
    for (const Column& column : table.columns) cells.push_back(read_cell(values, column.name));
    table.rows.push_back({field<std::string>(row, "name"), std::move(cells), field<bool>(row, "verified")});
  }
  return table;
}

Report read_report(const json& root) {
  const std::string format = field<std::string>(root, "format");
  if (format != kFormat) throw Malformed{concat("format '", format, "', known is ", kFormat)};
  Report report{.key = field<std::string>(root, "benchmark"),
                .about = field<std::string>(root, "about"),
                .version = field<std::string>(root, "version"),
                .abi = field<std::string>(root, "abi"),
                .devices = field<std::vector<std::string>>(root, "devices"),
                .parameters = field<std::map<std::string, std::string>>(root, "parameters"),
                .tables = {}};
  for (const json& table : array_in(root, "tables")) report.tables.push_back(read_table(table));
  if (const Status checked = check_report(report); !checked.is_ok()) throw Malformed{checked.detail()};
  return report;
}

}  // namespace

Result<std::string> report_json(const Report& report) {
  TCPX_RETURN_IF_ERROR(check_report(report));
  ordered_json tables = ordered_json::array();
  for (const Table& table : report.tables) tables.push_back(to_json(table));
  const ordered_json root = {
      {"format", kFormat}, {"benchmark", report.key},   {"about", report.about},           {"version", report.version},
      {"abi", report.abi}, {"devices", report.devices}, {"parameters", report.parameters}, {"tables", std::move(tables)}};
  std::string text = root.dump(2) + "\n";
  TCPX_RETURN_IF_ERROR(check_size("write report", text));
  return text;
}

Result<Report> parse_report(std::string_view text) {
  TCPX_RETURN_IF_ERROR(check_size("read report", text));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return Status(Code::kProtocol, "read report", "not JSON");
  try {
    return read_report(root);
  } catch (const Malformed& malformed) {
    return Status(Code::kProtocol, "read report", malformed.detail);
  }
}

Status save_report(const Report& report, const std::string& path) {
  const Result<std::string> json = report_json(report);
  return json.is_ok() ? write_file(path, *json) : json.status();
}

Status publish_report(const Report& report, const std::string& path) {
  TCPX_ASSIGN_OR_RETURN(const std::string text, report_text(report));
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);  // before what is said on stderr
  return path.empty() ? Status::ok() : save_report(report, path);
}

Result<Report> load_report(const std::string& path) {
  TCPX_ASSIGN_OR_RETURN(const std::string json, read_file(path, kMaxReportBytes));
  return parse_report(json);
}

}  // namespace tcpx
