// perf_chart: this run beside earlier ones.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "bench/soft_report.h"
#include "perf/plain_text.h"
#include "perf/report_series.h"
#include "perf/svg_chart.h"
#include "tools/perf/perf_report.h"

namespace tcpx::perf {
namespace {

/// Tables whose rows are sizes, and where their lines belong.
struct Drawn {
  const char* table;
  const char* x;
  const char* unit;    ///< of the columns that are lines
  const char* column;  ///< the only column that is one, or nullptr: all of that unit
  bool is_time;
  const char* suffix;  ///< of the line's name
};

constexpr Drawn kDrawn[] = {
    {"One way", "bytes", "GB/s", "rate", false, ""},
    {"Both ways", "bytes", "GB/s", "rate", false, ", both ways"},
    {"Half a round trip", "bytes", "us", "time", true, ""},
    // Of bench_soft_plugin.
    {bench::kBestOneWay, "bytes", "GB/s", nullptr, false, ""},
    {bench::kBestPingPong, "bytes", "us", nullptr, true, ""},
};

std::string shortened(const std::string& name) {
  constexpr std::string_view kUnverified = " (unverified)";
  constexpr size_t kMost = Chart::kLongestLabel - kUnverified.size();
  return name.size() <= kMost ? name : concat(name.substr(0, kMost - 3), "...");
}

/// Names of one panel must differ, whatever the files are called.
std::string unique_name(const std::string& wanted, const ChartPanel& panel) {
  std::string name = wanted;
  for (int i = 2; std::any_of(panel.series.begin(), panel.series.end(), [&](const ChartSeries& s) { return s.name == name; });
       ++i) {
    name = concat(wanted, " #", i);
  }
  return name;
}

Status add_lines(const NamedReport& source, const Table& table, const Drawn& drawn, ChartPanel& panel) {
  for (const Column& column : table.columns) {
    if (column.unit != drawn.unit || (drawn.column != nullptr && column.name != drawn.column)) continue;
    const std::string name = drawn.column != nullptr ? concat(source.name, drawn.suffix) : concat(column.name, ", ", source.name);
    Result<ChartSeries> series = series_of(table, drawn.x, column.name, shortened(name));
    if (!series.is_ok()) return series.status();
    series->name = unique_name(series->name, panel);
    panel.series.push_back(std::move(*series));
  }
  return Status::ok();
}

Status add_report(const NamedReport& source, ChartPanel& rates, ChartPanel& times) {
  bool found = false;
  for (const Table& table : source.report.tables) {
    const auto drawn = std::find_if(std::begin(kDrawn), std::end(kDrawn), [&](const Drawn& d) { return table.title == d.table; });
    if (drawn == std::end(kDrawn)) continue;
    found = true;
    TCPX_RETURN_IF_ERROR(add_lines(source, table, *drawn, drawn->is_time ? times : rates));
  }
  if (found) return Status::ok();
  return {Code::kInvalidArgument, "draw report", concat(source.name, ": has no table by size that this chart knows")};
}

}  // namespace

Result<std::string> perf_chart(const std::vector<NamedReport>& reports) {
  const ChartAxis sizes{.name = "size", .unit = "", .scale = AxisScale::kLog2, .labels = AxisLabels::kBytes};
  ChartPanel rates{.title = "Throughput by size",
                   .x = sizes,
                   .y = {.name = "rate", .unit = "GB/s", .scale = AxisScale::kLinear, .labels = AxisLabels::kNumbers},
                   .series = {},
                   .reference = std::nullopt};
  ChartPanel times{.title = "Latency by size (half a round trip)",
                   .x = sizes,
                   .y = {.name = "time", .unit = "us", .scale = AxisScale::kLog10, .labels = AxisLabels::kNumbers},
                   .series = {},
                   .reference = std::nullopt};
  for (const NamedReport& source : reports) TCPX_RETURN_IF_ERROR(add_report(source, rates, times));
  Chart chart{.title = "Transfers between two processes", .subtitle = "", .panels = {}};
  if (!reports.empty() && !reports.front().report.devices.empty()) chart.subtitle = reports.front().report.devices.front();
  for (ChartPanel* panel : {&rates, &times}) {
    if (!panel->series.empty()) chart.panels.push_back(std::move(*panel));
  }
  return svg_chart(chart);
}

Result<NamedReport> load_for_chart(const std::string& path) {
  Result<Report> report = load_report(path);
  if (!report.is_ok()) return report.status();
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".json") && name.size() > 5) name.resize(name.size() - 5);
  if (!is_plain_text(name))
    return Status(Code::kInvalidArgument, "draw report", concat(path, ": its name cannot stand in a chart"));
  NamedReport named{std::move(name), std::move(*report)};
  // What cannot be drawn is known before anything is measured.
  const Result<std::string> drawn = perf_chart({named});
  if (!drawn.is_ok()) return drawn.status();
  return named;
}

}  // namespace tcpx::perf
