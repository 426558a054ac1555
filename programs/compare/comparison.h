// Common parts of bench_soft_plugin and bench_endpoint: options, the machine as a report describes it, NCCL, and their
// exit.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "measure/report.h"
#include "measure/row_meter.h"
#include "programs/compare/soft_results.h"

namespace tcpx::bench {

struct ComparisonOptions {
  std::pair<int, int> gpus{0, 0};  ///< of the sending and the receiving end
  RowPlan row;
  std::string nccl_script;  ///< "": without NCCL
  bool quick = false;       ///< little of everything: does it work?
  std::string json;         ///< file to write; "": none
};

/// The part of a command line from which they come.
class ComparisonArguments {
 public:
  /// @param milliseconds default time of a row
  explicit ComparisonArguments(int milliseconds);
  void declare(CLI::App& app);
  /// Once the command line is parsed.
  ComparisonOptions options() const;

 private:
  std::vector<int> gpus_;
  int milliseconds_;
  std::string nccl_ = "auto";
  ComparisonOptions options_;
};

/// One run of a program. One thread.
class Comparison {
 public:
  /// @param stop ends the run early.
  Comparison(ComparisonOptions options, const std::atomic<bool>& stop);

  const ComparisonOptions& options() const { return options_; }
  bool stopped() const { return stop_; }
  bool has_gpu() const { return has_gpu_; }
  /// A line of progress, on stderr.
  void say(const std::string& line) const;
  /// For the report: omissions and their reasons.
  void note(const std::string& name, const std::string& text) { notes_[name] = text; }

  /// Takes note of a row that is done: of wrong bytes the first are told in the end. @param who "gpu, 4 sockets, 4 KiB one way"
  void compared(const std::string& who, const Measured& measured);
  /// "" when all bytes that were compared are right.
  const std::string& mismatch() const { return mismatch_; }

  /// Finds out what the report says about the GPUs.
  Status describe_gpus();
  /// Two fresh processes, connected over loopback, which is listed as often as `setup` has channels unless the user set
  /// NCCL_GPUDIRECTTCPX_SOCKET_IFNAME.
  Result<std::unique_ptr<RowMeter>> connect(const EndSetup& setup, EnvironmentOverrides overrides) const;
  /// NCCL with each of its settings; failures are noted, and the rest counts.
  std::vector<NcclRun> run_nccl(const std::vector<uint64_t>& sizes, const std::vector<uint64_t>& ping_pong_sizes);

  std::vector<std::string> devices() const { return devices_; }
  /// Notes, and what every report says: samples, cores, variables that are set.
  std::map<std::string, std::string> parameters() const;
  /// Prints and writes the report, and says how it went. @return the exit code
  int finish(const Status& measured, const Report& report) const;

 private:
  const ComparisonOptions options_;
  const std::atomic<bool>& stop_;
  const bool has_gpu_;
  std::vector<std::string> devices_;
  std::map<std::string, std::string> notes_;
  std::string mismatch_;
};

}  // namespace tcpx::bench
