// Rows as people and programs read them: the table that test_tcpx_perf prints, in the manner of nccl-tests (lines of '#' that say
// what was measured, a line per size), the CSV file and the report; and notes on earlier reports.
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

/// Several lines, each ending in one.
std::string table_head(const TableHead& head);
std::string table_line(const PerfRow& row);
/// "[PERF] Avg: 6.412 ms, BW: 10.47 GB/s (64 MiB, the last size)"
std::string last_line(const PerfRow& row);

std::string csv_head(const std::vector<std::string>& nics);
std::string csv_line(const PerfRow& row);

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
