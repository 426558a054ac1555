// What test_tcpx_perf writes to files: a report, and a chart of it beside earlier ones.
#pragma once

#include <string>
#include <vector>

#include "perf/report.h"
#include "tools/perf/row_table.h"

namespace tcpx::perf {

/// @param rows may be empty
Report make_perf_report(const TableHead& head, const std::vector<PerfRow>& rows, std::string abi,
                        std::vector<std::string> devices);

/// A report to be drawn, and how its lines are called: the name of its file.
struct NamedReport {
  std::string name;
  Report report;
};

/// Throughput by size and time by size, each panel with whatever of the reports has it. Takes reports of this tool and of
/// bench_soft_plugin, whose rows of NCCL come along.
/// @return kInvalidArgument naming a report that has neither; as svg_chart says.
Result<std::string> perf_chart(const std::vector<NamedReport>& reports);

/// Loads a report for the chart, named after its file. @return as load_report, and kInvalidArgument when there is nothing to
/// draw.
Result<NamedReport> load_for_chart(const std::string& path);

/// What to tell of those of `others` that were made in the same mode with another unpacker: where `mine` was clearly slower, the
/// largest such size.
std::vector<std::string> unpack_notes(const Report& mine, const std::vector<NamedReport>& others);

}  // namespace tcpx::perf
