// Report: findings of a benchmark, collected once, then written as text for people and as JSON for programs.
//
// A report holds several tables. A table has named columns, each with its unit, and named rows. A cell is a summary of samples, a
// number (a size, a ratio), a word, or empty where nothing was measured. Every row says whether the data it moved was compared
// with what it must be; the text calls a row that was not "unverified".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "measure/samples.h"
#include "tcpx/status.h"

namespace tcpx {

/// Empty, a number, samples, a word.
using Cell = std::variant<std::monostate, double, Summary, std::string>;

/// The number of a cell: itself, or the median of samples; nothing for words and empty cells.
std::optional<double> number_in(const Cell& cell);

struct Column {
  std::string name;  ///< unique in its table
  std::string unit;  ///< "GB/s"; "" for words and ratios
  bool operator==(const Column&) const = default;
};

struct Row {
  std::string name;         ///< unique in its table
  std::vector<Cell> cells;  ///< one per column
  bool verified = false;    ///< all bytes behind the numbers of this row were compared
  bool operator==(const Row&) const = default;
};

struct Table {
  std::string title;        ///< unique in its report
  std::string row_heading;  ///< meaning of a row's name: "method", "fragment"
  std::vector<Column> columns;
  std::vector<Row> rows;
  bool operator==(const Table&) const = default;
};

/// Every string is plain text (measure/plain_text.h) in one line.
struct Report {
  std::string key;    ///< short name of the benchmark: a-z, 0-9, _
  std::string about;  ///< a paragraph: the measured thing, and the bytes that are counted
  std::string version = TCPX_VERSION;
  std::string abi = "ncclNetPlugin_v7";
  std::vector<std::string> devices;               ///< "NVIDIA H200, driver 580.159.04"
  std::map<std::string, std::string> parameters;  ///< on which the numbers depend
  std::vector<Table> tables;
  bool operator==(const Report&) const = default;
};

/// Reports beyond this are neither written nor read.
inline constexpr size_t kMaxReportBytes = 4u << 20;

/// kInvalidArgument naming the table, row and column when `report` is not as the fields above say: a name that is missing,
/// repeated or not plain text, a row with more or fewer cells than columns, a number that is not finite, a summary out of order.
Status check_report(const Report& report);

/// Appends the column "`over` / `under`" when the table has both columns. Rows without a number in one of them, or with none
/// above zero below, get an empty cell.
void add_ratio_column(Table& table, const std::string& over, const std::string& under);

/// A table of the same rows and columns whose every number is divided by that of the row `reference` in its column. Columns in
/// which the reference has no number are left out. If the reference is unverified, so is every row.
/// @return kNotFound when there is no such row; kInvalidArgument when the reference has no number above zero in a column, or a
/// row has not one cell per column.
Result<Table> ratio_table(const Table& table, std::string_view reference, std::string title);

/// Aligned tables for people. @return kInvalidArgument as check_report says.
Result<std::string> report_text(const Report& report);

/// Two lines above, and a line for each row of a table that is printed while other rows are still measured. Samples are shown with
/// their number, least, median and largest. @param like a row whose cells are of the same kind
std::string row_headings(const Table& table, const Row& like);
std::string row_line(const Table& table, const Row& row);

/// The columns of a table as comma-separated values, below their names with units. Rows have cells of the same kind; an empty cell is an
/// empty value.
std::string table_csv(const Table& table);

/// @return kInvalidArgument as check_report says, or when it would be longer than kMaxReportBytes.
Result<std::string> report_json(const Report& report);
/// The report that `json` holds, checked. @return kProtocol naming the place when it is not a report, kInvalidArgument when it is
/// longer than kMaxReportBytes.
Result<Report> parse_report(std::string_view json);

/// Writes report_json(report) to the file `path` (measure/result_file.h says how). @return the Status of the step that failed.
Status save_report(const Report& report, const std::string& path);
/// Prints report_text(report) on stdout, and saves the report unless `path` is empty.
Status publish_report(const Report& report, const std::string& path);
/// @return kNotFound when there is no such file, kSystem with errno, kInvalidArgument and kProtocol as parse_report says.
Result<Report> load_report(const std::string& path);

/// One way to unpack and how fast it was, in GB/s.
struct UnpackRate {
  std::string_view name;  ///< "kernel", "d2d", ...
  double gb_per_second = 0;
};

/// "64 MiB: unpack kernel 9.10 GB/s, d2d 12.3 GB/s (TCPX_H_UNPACK_SLOW). ..." when `used` is slower than `other` by more than a
/// tenth, which two runs of one kind rarely differ by; else "".
/// @param what was moved
std::string unpack_note(std::string_view what, const UnpackRate& used, const UnpackRate& other);

}  // namespace tcpx
