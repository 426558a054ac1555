// Output of a run: the table on stdout as it grows, a progress line, and in the end the files that were asked for.
#pragma once

#include <string>
#include <vector>

#include "programs/perf/perf_end.h"
#include "programs/perf/perf_report.h"
#include "programs/perf/progress_line.h"

namespace tcpx::perf {

class PerfOutput {
 public:
  /// @param quiet prints and writes nothing
  PerfOutput(const PerfOptions& options, bool quiet) : options_(options), quiet_(quiet) {}

  /// Loads the reports to compare with.
  Status load();
  void line(const std::string& text);
  PerfListener listener();

  /// Shows the row under way as far as an interrupted or failed end had it.
  void show_unfinished(const PerfEnd& end);
  /// The last line of the table, and the files. @param abi, devices for the report
  Status finish(std::string abi, std::vector<std::string> devices);

  /// kMismatch when bytes were wrong.
  Status verdict() const;
  /// Statement of a successful run about its bytes.
  std::string promise() const;

 private:
  void print(const std::string& text);
  Status write_files(const Report& report);

  const PerfOptions& options_;
  const bool quiet_;
  std::vector<NamedReport> compared_;
  TableHead head_;
  std::vector<PerfRow> rows_;
  ProgressLine progress_;
};

}  // namespace tcpx::perf
