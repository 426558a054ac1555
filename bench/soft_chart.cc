#include <algorithm>
#include <string_view>

#include "bench/soft_report.h"
#include "perf/report_series.h"
#include "perf/svg_chart.h"

namespace tcpx::bench {
namespace {

const Table* find_table(const Report& report, std::string_view title) {
  const auto found = std::find_if(report.tables.begin(), report.tables.end(), [&](const Table& t) { return t.title == title; });
  return found == report.tables.end() ? nullptr : &*found;
}

/// Every column of `table` but the first and the ratios, over the first.
Status add_series(const Table& table, const std::string& unit, ChartPanel& panel) {
  for (size_t i = 1; i < table.columns.size(); ++i) {
    if (table.columns[i].unit != unit) continue;
    Result<ChartSeries> series = series_of(table, table.columns.front().name, table.columns[i].name, table.columns[i].name);
    if (!series.is_ok()) return series.status();
    panel.series.push_back(std::move(series).value());
  }
  return Status::ok();
}

}  // namespace

Result<std::string> soft_chart(const Report& report) {
  Chart chart{.title = "Software plugin over loopback TCP",
              .subtitle = report.devices.empty() ? "" : report.devices.front(),
              .panels = {}};
  struct Wanted {
    const char* title;
    const char* table;
    const char* quantity;
    const char* unit;
    ChartAxis x;
    AxisScale y_scale;
  };
  const ChartAxis sizes{.name = "message", .unit = "", .scale = AxisScale::kLog2, .labels = AxisLabels::kBytes};
  const ChartAxis sockets{.name = "data sockets", .unit = "", .scale = AxisScale::kLog2, .labels = AxisLabels::kNumbers};
  for (const Wanted& wanted : {Wanted{"One way", kBestOneWay, "moved", "GB/s", sizes, AxisScale::kLinear},
                               Wanted{"Half a round trip", kBestPingPong, "time", "us", sizes, AxisScale::kLog10},
                               Wanted{"By data sockets", kBySockets, "moved", "GB/s", sockets, AxisScale::kLinear},
                               Wanted{"By unpacker", kByUnpacker, "moved", "GB/s", sizes, AxisScale::kLinear}}) {
    const Table* table = find_table(report, wanted.table);
    if (table == nullptr) continue;
    ChartPanel panel{.title = wanted.title,
                     .x = wanted.x,
                     .y = {.name = wanted.quantity, .unit = wanted.unit, .scale = wanted.y_scale, .labels = AxisLabels::kNumbers},
                     .series = {},
                     .reference = std::nullopt};
    TCPX_RETURN_IF_ERROR(add_series(*table, wanted.unit, panel));
    chart.panels.push_back(std::move(panel));
  }
  return svg_chart(chart);
}

}  // namespace tcpx::bench
