// Files of test_tcpx_perf: its report, and notes on earlier ones.
#pragma once

#include <string>
#include <vector>

#include "measure/report.h"
#include "programs/perf/row_table.h"

namespace tcpx::perf {

/// @param rows may be empty
Report make_perf_report(const TableHead& head, const std::vector<PerfRow>& rows, std::string abi,
                        std::vector<std::string> devices);

/// An earlier report, and how it is called: the name of its file.
struct NamedReport {
  std::string name;
  Report report;
};

/// Notes on those of `others` that were made in the same mode with another unpacker: where `mine` was clearly slower, the
/// largest such size.
std::vector<std::string> unpack_notes(const Report& mine, const std::vector<NamedReport>& others);

}  // namespace tcpx::perf
