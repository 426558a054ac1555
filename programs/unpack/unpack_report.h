// Text of bench_unpack's report: report, ratios, notes.
#pragma once

#include <string>
#include <vector>

#include "measure/report.h"
#include "programs/unpack/unpack_bench.h"

namespace tcpx::bench {

/// Without tables. @param device "NVIDIA H200, driver 580.159.04"
Report make_unpack_report(const std::string& device, const UnpackBenchOptions& options);

/// Appends `table`, and behind it the ratios to its first row where that is the ceiling of the others.
Status add_with_ratios(Report& report, Table table);

/// Notes for unpackers that gathered faster than the kernel; for each kind of fragments at most one note.
std::vector<std::string> unpack_notes(const Report& report);

}  // namespace tcpx::bench
