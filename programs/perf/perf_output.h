// Output of a run: the table on stdout as it grows, a progress line, and in the end the files that were asked for.
#pragma once

#include <string>
#include <vector>

#include "programs/perf/perf_report.h"

namespace tcpx::perf {

/// A line on a terminal that says how far things are, and is gone afterwards: on stderr, when that is a terminal; else nothing.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text);
  /// Before anything else is printed.
  void clear();

 private:
  bool on_terminal_;
  size_t shown_ = 0;
};

class PerfOutput {
 public:
  /// @param quiet prints and writes nothing
  PerfOutput(const PerfOptions& options, bool quiet) : options_(options), quiet_(quiet) {}

  /// Loads the reports to compare with.
  Status load();
  void line(const std::string& text);
  void begin(const TableHead& head);
  /// Of the row under way. @param timed else warming up @param done transfers, timed ones once `timed`
  void progress(uint64_t bytes, bool timed, uint64_t done, uint64_t busy_ns);
  void row(const PerfRow& row);
  /// The row under way as far as an interrupted or failed end had it.
  void unfinished(uint64_t bytes, const EndRow& row);
  /// The last line of the table, and the files. @param abi, devices for the report
  Status finish(std::string abi, std::vector<std::string> devices);

  const std::vector<PerfRow>& rows() const { return rows_; }
  /// kMismatch when bytes were wrong.
  Status verdict() const;
  /// Statement of a successful run about its bytes.
  std::string promise() const;

 private:
  void print(const std::string& text);
  Status write_files();

  const PerfOptions& options_;
  const bool quiet_;
  std::vector<NamedReport> compared_;
  TableHead head_;
  Report report_;
  std::vector<PerfRow> rows_;
  ProgressLine progress_;
};

}  // namespace tcpx::perf
