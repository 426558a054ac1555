// report_json and parse_report: a report as JSON. No other file of this folder knows the JSON library.
//
//   {"format": "tcpx-report-1", "benchmark": "unpack", "about": "...", "version": "0.1.0", "abi": "ncclNetPlugin_v7",
//    "devices": ["..."], "parameters": {"bytes": "67108864"},
//    "tables": [{"title": "...", "row_heading": "method", "columns": [{"name": "...", "unit": "GB/s"}],
//                "rows": [{"name": "kernel", "verified": true,
//                          "values": {"<column>": {"count": 5, "min": 1.0, "median": 2.0, "max": 3.0}, or a number, a string,
//                          null}}]}]}
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "measure/report.h"
#include "measure/result_file.h"

namespace tcpx {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kFormat[] = "tcpx-report-1";

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

/// Takes fields out of JSON values. The first field that is missing or of another kind sticks as `status()`; a value read after
/// it is empty and must not be used.
class FieldReader {
 public:
  const Status& status() const { return status_; }

  std::string text(const json& object, const std::string& name) {
    const json* field = find(object, name);
    if (field != nullptr && field->is_string()) return field->get<std::string>();
    return fail(name, "a string"), "";
  }
  bool flag(const json& object, const std::string& name) {
    const json* field = find(object, name);
    if (field != nullptr && field->is_boolean()) return field->get<bool>();
    return fail(name, "true or false"), false;
  }
  const json& array(const json& object, const std::string& name) {
    static const json kNone = json::array();
    const json* field = find(object, name);
    if (field != nullptr && field->is_array()) return *field;
    return fail(name, "an array"), kNone;
  }
  const json& object(const json& object, const std::string& name) {
    static const json kNone = json::object();
    const json* field = find(object, name);
    if (field != nullptr && field->is_object()) return *field;
    return fail(name, "an object"), kNone;
  }
  std::string word(const json& value, const std::string& name) {
    if (value.is_string()) return value.get<std::string>();
    return fail(name, "a string"), "";
  }
  Cell cell(const json& values, const std::string& column) {
    const json* field = find(values, column);
    if (field == nullptr) return fail(column, "in every row"), Cell();
    if (field->is_null()) return {};
    if (field->is_number()) return field->get<double>();
    if (field->is_string()) return field->get<std::string>();
    const json* count = find(*field, "count");
    if (count == nullptr || !count->is_number_unsigned()) return fail(column, "a number, a string, null or samples"), Cell();
    return Summary{count->get<size_t>(), number(*field, "min"), number(*field, "median"), number(*field, "max")};
  }

 private:
  static const json* find(const json& object, const std::string& name) {
    if (!object.is_object()) return nullptr;
    const auto field = object.find(name);
    return field == object.end() ? nullptr : &*field;
  }
  double number(const json& object, const std::string& name) {
    const json* field = find(object, name);
    if (field != nullptr && field->is_number()) return field->get<double>();
    return fail(name, "a number"), 0;
  }
  void fail(const std::string& name, std::string_view expected) {
    if (status_.is_ok()) status_ = Status(Code::kProtocol, "read report", concat("'", name, "' must be ", expected));
  }

  Status status_;
};

Table read_table(FieldReader& reader, const json& value) {
  Table table = {reader.text(value, "title"), reader.text(value, "row_heading"), {}, {}};
  for (const json& column : reader.array(value, "columns")) {
    table.columns.push_back({reader.text(column, "name"), reader.text(column, "unit")});
  }
  for (const json& row : reader.array(value, "rows")) {
    const json& values = reader.object(row, "values");
    std::vector<Cell> cells;
    for (const Column& column : table.columns) cells.push_back(reader.cell(values, column.name));
    table.rows.push_back({reader.text(row, "name"), std::move(cells), reader.flag(row, "verified")});
    if (!reader.status().is_ok()) break;
  }
  return table;
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
  if (text.size() > kMaxReportBytes) {
    return Status(Code::kInvalidArgument, "write report",
                  concat(text.size(), " bytes, at most ", kMaxReportBytes, " are allowed"));
  }
  return text;
}

Result<Report> parse_report(std::string_view text) {
  if (text.size() > kMaxReportBytes) {
    return Status(Code::kInvalidArgument, "read report",
                  concat(text.size(), " bytes, at most ", kMaxReportBytes, " are allowed"));
  }
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return Status(Code::kProtocol, "read report", "not JSON");
  FieldReader reader;
  const std::string format = reader.text(root, "format");
  if (!reader.status().is_ok()) return reader.status();
  if (format != kFormat) return Status(Code::kProtocol, "read report", concat("format '", format, "', known is ", kFormat));
  Report report;
  report.key = reader.text(root, "benchmark");
  report.about = reader.text(root, "about");
  report.version = reader.text(root, "version");
  report.abi = reader.text(root, "abi");
  for (const json& device : reader.array(root, "devices")) report.devices.push_back(reader.word(device, "devices"));
  for (const auto& [name, value] : reader.object(root, "parameters").items()) report.parameters[name] = reader.word(value, name);
  for (const json& table : reader.array(root, "tables")) report.tables.push_back(read_table(reader, table));
  if (!reader.status().is_ok()) return reader.status();
  if (const Status checked = check_report(report); !checked.is_ok())
    return Status(Code::kProtocol, "read report", checked.detail());
  return report;
}

Status save_report(const Report& report, const std::string& path) {
  const Result<std::string> json = report_json(report);
  return json.is_ok() ? write_file(path, *json) : json.status();
}

Result<Report> load_report(const std::string& path) {
  TCPX_ASSIGN_OR_RETURN(const std::string json, read_file(path, kMaxReportBytes));
  return parse_report(json);
}

}  // namespace tcpx
