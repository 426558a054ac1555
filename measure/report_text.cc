// report_text: a report as aligned tables.
#include <algorithm>

#include "base/text.h"
#include "measure/plain_text.h"
#include "measure/report.h"

namespace tcpx {
namespace {

constexpr size_t kParagraphWidth = 100;

std::string padded_left(const std::string& text, size_t width) {
  return std::string(width - std::min(width, display_width(text)), ' ') + text;
}

std::string padded_right(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, display_width(text)), ' ');
}

/// One column, laid out. The text after the value in samples, " [min .. max]", is aligned by itself, so that values lie below
/// each other whether they are samples or not.
class LaidOutColumn {
 public:
  LaidOutColumn(const Column& column, size_t idx, const std::vector<Row>& rows)
      : heading_(column.unit.empty() ? column.name : concat(column.name, " (", column.unit, ")")), idx_(idx) {
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
  static std::string value_of(const Cell& cell) {
    if (const auto* number = std::get_if<double>(&cell)) return format_measured(*number);
    if (const auto* summary = std::get_if<Summary>(&cell)) return format_measured(summary->median);
    if (const auto* word = std::get_if<std::string>(&cell)) return *word;
    return "-";
  }
  size_t spread_width() const { return max_ == 0 ? 0 : min_ + max_ + std::string_view(" [ .. ]").size(); }

  std::string heading_;
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
    text += row.verified ? "  verified\n" : "  unverified\n";
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

}  // namespace tcpx
