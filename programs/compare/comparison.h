// Common parts of bench_soft_plugin and bench_endpoint: options, the machine as a report describes it, NCCL, and their
// exit.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "measure/report.h"
#include "measure/row_meter.h"
#include "programs/compare/measured_run.h"

namespace tcpx {

inline constexpr unsigned kManyCores = 16;  ///< from so many on, the pipeline is measured with several channels, too

inline constexpr uint64_t kRawWriteBytes = 512 << 10;  ///< of a call of raw TCP

/// The common part of their command lines.
struct ComparisonOptions {
  /// @param row_milliseconds default time of a row
  explicit ComparisonOptions(int row_milliseconds);
  void declare(CLI::App& app);

  std::vector<int> gpus;  ///< of the sending and the receiving end; empty: 0,1, or 0,0 where there is one
  size_t samples = MeasurePlan::kFewestSamples;
  int milliseconds;  ///< of all samples of a row together, about
  std::string nccl = "auto";
  bool quick = false;  ///< little of everything, without NCCL: does it work?
  std::string json;    ///< file to write; "": none
};

/// A way to move messages between two processes.
struct Mover {
  std::string name;  ///< "pipeline", "4 streams"
  EndSetup setup;
  RowSetup row = {};  ///< all but the pattern and the bytes
  EnvironmentOverrides overrides = {};
};

/// Messages of some sizes, moved by each of `movers`: a table of those that go one way, and one of those that go to and fro.
struct Section {
  std::string title;
  std::vector<Mover> movers = {};
  std::vector<uint64_t> one_way = {}, ping_pong = {};            ///< sizes
  std::vector<std::pair<std::string, std::string>> ratios = {};  ///< of two columns
  std::string unit = "GB/s";                                     ///< one way; or "1000/s", of messages
  bool costs = false;                                            ///< one more table: GB per core-second, one way
};

/// One run of a program. One thread.
class Comparison {
 public:
  /// @param stop ends the run early.
  Comparison(ComparisonOptions options, const std::atomic<bool>& stop);

  bool quick() const { return options_.quick; }
  const RowPlan& row() const { return row_; }
  std::pair<int, int> gpus() const { return gpus_; }
  bool stopped() const { return stop_; }
  bool has_gpu() const { return has_gpu_; }
  /// A line of progress, on stderr.
  void say(const std::string& line) const;
  /// To be filled while measuring: key, about, tables. After an error it is written as far as it goes.
  Report& report() { return report_; }
  /// A parameter of the report, be it an omission and its reason.
  void note(const std::string& name, const std::string& text) { report_.parameters[name] = text; }

  /// Measures `section` with two fresh processes for each mover. A row of each is measured at a time, sample by sample in turns,
  /// so that any other load on the machine weighs on all alike.
  /// @param runs gets what came out of each mover; after an error, what came out before it
  Status measure(const Section& section, std::vector<MeasuredRun>& runs);
  /// Adds the tables of `section` that have rows. @param runs measured, or otherwise known; the movers of `section` do not count
  void add_tables(const Section& section, const std::vector<MeasuredRun>& runs);
  /// Takes note of a row that is done: of wrong bytes the first are told in the end. @param who "gpu, 4 sockets, 4 KiB one way"
  void compared(const std::string& who, const Measured& measured);
  /// "" when all bytes that were compared are right.
  const std::string& mismatch() const { return mismatch_; }

  /// Two fresh processes, connected over loopback, which is listed as often as `setup` has channels unless the user set
  /// NCCL_GPUDIRECTTCPX_SOCKET_IFNAME.
  Result<std::unique_ptr<RowMeter>> connect(const EndSetup& setup, EnvironmentOverrides overrides) const;
  /// NCCL with each of its settings; failures are noted, and the rest counts.
  std::vector<MeasuredRun> run_nccl(const std::vector<uint64_t>& sizes, const std::vector<uint64_t>& ping_pong_sizes);

  /// Describes the machine, calls `measure`, prints and writes the report, and says how it went. @return the exit code
  int run(const std::function<Status(Comparison&)>& measure);

 private:
  using Meters = std::vector<std::unique_ptr<RowMeter>>;
  Status measure_row(const Section& section, Meters& meters, Pattern pattern, uint64_t bytes, std::vector<MeasuredRun>& runs);
  Status describe_machine();
  int finish(const Status& measured) const;

  const ComparisonOptions options_;
  const std::atomic<bool>& stop_;
  const bool has_gpu_;
  std::pair<int, int> gpus_{0, 0};
  RowPlan row_;
  Report report_;
  std::string mismatch_;
};

/// The main of both. @param app has what this one takes more than the other
int comparison_main(CLI::App& app, int argc, char** argv, int row_milliseconds,
                    const std::function<Status(Comparison&)>& measure);

}  // namespace tcpx
