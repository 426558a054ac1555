// From a report, this run's or an earlier one, to the lines of a chart.
#pragma once

#include <string_view>

#include "perf/report.h"
#include "perf/svg_chart.h"

namespace tcpx {

/// A series named `name` with a point for every row of `table` that has numbers in both columns. When one of these rows is not
/// verified, the name says so.
/// @return kNotFound when there is no such column; kInvalidArgument when a row has fewer cells than there are columns.
Result<ChartSeries> series_of(const Table& table, std::string_view x_column, std::string_view y_column, std::string_view name);

}  // namespace tcpx
