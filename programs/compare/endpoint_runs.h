// All measurements of bench_endpoint, section by section. In each the ends of every column are two fresh processes, and the
// columns take turns sample by sample.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "measure/bench.h"
#include "measure/report.h"
#include "programs/compare/soft_results.h"
#include "transfer/connection_setup.h"

namespace tcpx::bench {

/// "bulk", "vector", "latency", "small", "peers", "memory".
const std::vector<std::string>& endpoint_sections();

struct EndpointRunOptions {
  std::vector<std::string> only;  ///< sections; empty: all
  std::pair<int, int> gpus{0, 0};
  PipelineSettings settings;  ///< of the environment; no channels: as many as the machine feeds
  uint32_t peers = 64;        ///< of the sections "peers" and "memory"
  bool quick = false;         ///< little of everything: does it work?
  RowPlan row;
  std::string nccl_script;  ///< "": without NCCL
};

class EndpointRuns {
 public:
  /// Called with each line of progress.
  using Say = std::function<void(const std::string&)>;

  /// The ends use loopback, as often as there are channels, unless the user set NCCL_GPUDIRECTTCPX_SOCKET_IFNAME.
  /// @param stop ends the run early.
  EndpointRuns(EndpointRunOptions options, const std::atomic<bool>& stop, Say say);

  /// Everything. After an error, what was measured before it is in the report.
  Status run();
  Report report() const;
  /// What the first wrong bytes were; "" when all that were compared are right.
  const std::string& mismatch() const { return mismatch_; }

 private:
  /// A column: who moves messages, and how.
  struct Contender {
    std::string name;
    EndSetup setup;
    RowSetup row;
  };
  enum class Show { kRate, kMicroseconds, kThousandMessages };
  struct Section {
    std::string title;
    Show show = Show::kRate;
    std::vector<uint64_t> sizes;
    std::vector<Contender> contenders;
    std::vector<std::pair<std::string, std::string>> ratios;  ///< of two columns
    std::map<uint64_t, Measured> nccl;                        ///< one more column
  };

  Status bulk();
  Status vectors();
  Status latency();
  Status small();
  Status peers();
  Status memory();
  Status compare(const Section& section);
  Result<Row> row(const Section& section, uint64_t bytes, std::vector<std::unique_ptr<SoftBench>>& benches);
  std::map<uint64_t, Measured> nccl(const std::vector<uint64_t>& sizes);
  Result<std::unique_ptr<SoftBench>> connect(const EndSetup& setup) const;
  EndSetup endpoint(MemoryType memory) const;
  MemoryType best_memory() const { return has_gpu_ ? MemoryType::kCuda : MemoryType::kHost; }

  EndpointRunOptions options_;
  const std::atomic<bool>& stop_;
  const Say say_;
  const bool has_gpu_;
  EnvironmentOverrides overrides_;
  Report report_;
  std::string mismatch_;
};

}  // namespace tcpx::bench
