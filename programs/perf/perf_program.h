// Run of test_tcpx_perf once its command line is parsed.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "programs/perf/perf_options.h"

namespace tcpx::perf {

/// Of the hidden option by which the server process of a loopback run learns its descriptor.
inline constexpr char kLoopbackOption[] = "--loopback-descriptor";

struct PerfProgram {
  PerfOptions options;
  std::vector<std::string> arguments;      ///< of this process, for its server process
  std::optional<int> loopback_descriptor;  ///< set: this is that server process, which prints nothing
};

/// Verdict on a run, for the last line of the program.
struct PerfVerdict {
  Status status;        ///< the first thing that went wrong
  std::string passed;   ///< meaning of an ok status
  std::string skipped;  ///< not "": nothing was measured, for this reason
};

/// Runs one end, or both, and prints the table on stdout. `stop` becoming true ends the run early, with what there is.
PerfVerdict run_perf_program(const PerfProgram& program, const std::atomic<bool>& stop);

}  // namespace tcpx::perf
