// The report of test_tcpx_perf, and the lines around its rows, which are printed as they are measured, in the manner of nccl-tests
// (lines of '#' that say what was measured, a line per size); and notes on earlier reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/report.h"
#include "programs/perf/row_result.h"

namespace tcpx::perf {

/// Contents of the head of the table.
struct TableHead {
  std::string version;
  Measurement asked;              ///< of `pipeline` the chunks alone
  std::string server, client;     ///< one line about each end
  std::string unpack;             ///< unpacker of the server; "" when received messages go through none
  std::vector<std::string> nics;  ///< of the server, in the order of the rates
  uint32_t channels = 0;
  uint32_t longest_chunk_bytes = 0;  ///< of long transfers, when more
  bool verified = true;
};

/// Several lines, each beginning with '#': what is measured.
std::string head_lines(const TableHead& head);
/// "[PERF] Avg: 6.412 ms, BW: 10.47 GB/s (64 MiB, the last size)"
std::string last_line(const PerfRow& row);

/// With one table, to which rows are added.
Report make_perf_report(const TableHead& head);
Row report_row(const TableHead& head, const PerfRow& row);

/// An earlier report, and how it is called: the name of its file.
struct NamedReport {
  std::string name;
  Report report;
};

/// Notes on those of `others` that were made in the same mode with another unpacker: where `mine` was clearly slower, the
/// largest such size.
std::vector<std::string> unpack_notes(const Report& mine, const std::vector<NamedReport>& others);

}  // namespace tcpx::perf
