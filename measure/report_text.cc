// A report as aligned tables; rows that are printed while others are still measured; a table as CSV.
#include <algorithm>

#include "base/text.h"
#include "measure/plain_text.h"
#include "measure/report.h"

namespace tcpx {
namespace {

constexpr size_t kParagraphWidth = 100;
constexpr size_t kNarrowest = 9;  // column of a row that is printed alone, with the blank in front

std::string padded_left(const std::string& text, size_t width) {
  return std::string(width - std::min(width, display_width(text)), ' ') + text;
}

std::string padded_right(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, display_width(text)), ' ');
}

const char* data_of(const Row& row) {
  return row.verified ? "verified" : "unverified";
}

/// The text of a number in its unit. A count of bytes is exact; others are measured.
std::string number_text(double number, const std::string& unit) {
  return unit == "B" ? format_fixed(number, 0) : format_measured(number);
}

/// A value of a row, and what stands above it. Samples are several: their number, least, median and largest.
struct Value {
  std::string heading, unit, text, exact;
};

std::vector<Value> values_of(const Table& table, const Row& row) {
  std::vector<Value> values;
  const auto add = [&](const std::string& heading, const std::string& unit, double number) {
    values.push_back({heading, unit, number_text(number, unit), format_fixed(number, unit == "B" ? 0 : 6)});
  };
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const auto& [name, unit] = table.columns[i];
    if (const auto* summary = std::get_if<Summary>(&row.cells[i])) {
      values.push_back({"count", "", concat(summary->count), concat(summary->count)});
      add("min", unit, summary->min);
      add("median", unit, summary->median);
      add("max", unit, summary->max);
    } else if (const auto* number = std::get_if<double>(&row.cells[i])) {
      add(name, unit, *number);
    } else {
      const auto* word = std::get_if<std::string>(&row.cells[i]);
      values.push_back({name, unit, word != nullptr ? *word : "-", word != nullptr ? *word : ""});
    }
  }
  return values;
}

/// One column, laid out. The text after the value in samples, " [min .. max]", is aligned by itself, so that values lie below
/// each other whether they are samples or not.
class LaidOutColumn {
 public:
  LaidOutColumn(const Column& column, size_t idx, const std::vector<Row>& rows)
      : heading_(column.unit.empty() ? column.name : concat(column.name, " (", column.unit, ")")), unit_(column.unit), idx_(idx) {
    for (const Row& row : rows) {
      const Cell& cell = row.cells[idx];
      value_ = std::max(value_, display_width(value_of(cell)));
      if (const auto* summary = std::get_if<Summary>(&cell)) {
        min_ = std::max(min_, format_measured(summary->min).size());
        max_ = std::max(max_, format_measured(summary->max).size());
      }
    }
    width_ = std::max(display_width(heading_), value_ + spread_width());
  }

  std::string heading() const { return padded_left(heading_, width_); }
  size_t width() const { return width_; }

  std::string cell(const Row& row) const {
    const Cell& cell = row.cells[idx_];
    std::string spread(spread_width(), ' ');
    if (const auto* summary = std::get_if<Summary>(&cell)) {
      spread = concat(" [", padded_left(format_measured(summary->min), min_), " .. ",
                      padded_left(format_measured(summary->max), max_), "]");
    }
    return padded_left(padded_left(value_of(cell), value_) + spread, width_);
  }

 private:
  std::string value_of(const Cell& cell) const {
    if (const auto* number = std::get_if<double>(&cell)) return number_text(*number, unit_);
    if (const auto* summary = std::get_if<Summary>(&cell)) return format_measured(summary->median);
    if (const auto* word = std::get_if<std::string>(&cell)) return *word;
    return "-";
  }
  size_t spread_width() const { return max_ == 0 ? 0 : min_ + max_ + std::string_view(" [ .. ]").size(); }

  std::string heading_, unit_;
  size_t idx_;
  size_t value_ = 0, min_ = 0, max_ = 0, width_ = 0;
};

void append_table(std::string& text, const Table& table) {
  std::vector<LaidOutColumn> columns;
  for (size_t i = 0; i < table.columns.size(); ++i) columns.emplace_back(table.columns[i], i, table.rows);
  size_t name_width = display_width(table.row_heading);
  for (const Row& row : table.rows) name_width = std::max(name_width, display_width(row.name));

  text += concat("\n", table.title, "\n", padded_right(table.row_heading, name_width));
  std::string rule(name_width, '-');
  for (const LaidOutColumn& column : columns) {
    text += "  " + column.heading();
    rule += "  " + std::string(column.width(), '-');
  }
  text += "  data\n" + rule + "  ----------\n";
  for (const Row& row : table.rows) {
    text += padded_right(row.name, name_width);
    for (const LaidOutColumn& column : columns) text += "  " + column.cell(row);
    text += concat("  ", data_of(row), "\n");
  }
}

/// "9", "5 to 9"; "" when no cell holds samples.
std::string sample_counts(const Report& report) {
  size_t fewest = SIZE_MAX, most = 0;
  for (const Table& table : report.tables) {
    for (const Row& row : table.rows) {
      for (const Cell& cell : row.cells) {
        const auto* summary = std::get_if<Summary>(&cell);
        if (summary == nullptr) continue;
        fewest = std::min(fewest, summary->count);
        most = std::max(most, summary->count);
      }
    }
  }
  if (most == 0) return "";
  return fewest == most ? concat(most) : concat(fewest, " to ", most);
}

}  // namespace

Result<std::string> report_text(const Report& report) {
  TCPX_RETURN_IF_ERROR(check_report(report));
  std::string text = concat(report.key, ": tcpx ", report.version, ", ABI ", report.abi, "\n");
  for (const std::string& line : wrap(report.about, kParagraphWidth)) text += line + "\n";
  for (const std::string& device : report.devices) text += concat("device: ", device, "\n");
  for (const auto& [name, value] : report.parameters) text += concat(name, ": ", value, "\n");
  const std::string counts = sample_counts(report);
  if (!counts.empty()) text += concat("Numbers with brackets: median [minimum .. maximum] of ", counts, " samples.\n");
  for (const Table& table : report.tables) append_table(text, table);
  return text;
}

std::string row_headings(const Table& table, const Row& like) {
  std::string headings, units;
  for (const Value& value : values_of(table, like)) {
    const size_t width = std::max(kNarrowest, value.heading.size() + 2);
    headings += padded_left(value.heading, width);
    units += padded_left(value.unit.empty() ? "" : concat("(", value.unit, ")"), width);
  }
  return concat("#", headings, "  data\n#", units, "\n");
}

std::string row_line(const Table& table, const Row& row) {
  std::string line = " ";
  for (const Value& value : values_of(table, row)) {
    const size_t width = std::max(kNarrowest, value.heading.size() + 2);
    line += value.text.size() < width ? padded_left(value.text, width) : " " + value.text;
  }
  return concat(line, "  ", data_of(row), "\n");
}

std::string table_csv(const Table& table) {
  std::string text;
  for (const Row& row : table.rows) {
    const std::vector<Value> values = values_of(table, row);
    if (text.empty()) {
      for (const auto& value : values)
        text += concat(value.heading, value.unit.empty() ? "" : concat(" (", value.unit, ")"), ",");
      text += "data\n";
    }
    for (const Value& value : values) text += value.exact + ",";
    text += concat(data_of(row), "\n");
  }
  return text;
}

}  // namespace tcpx
