// All measurements of bench_endpoint, section by section. In each the ends of every column are two fresh processes, and the
// columns take turns sample by sample.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "programs/compare/comparison.h"
#include "transfer/pipeline_setup.h"

namespace tcpx::bench {

/// "bulk", "vector", "latency", "small", "peers", "memory".
const std::vector<std::string>& endpoint_sections();

struct EndpointRunOptions {
  std::vector<std::string> only;  ///< sections; empty: all
  PipelineSettings settings;      ///< of the environment; no channels: as many as the machine feeds
  uint32_t peers = 64;            ///< of the sections "peers" and "memory"
};

class EndpointRuns {
 public:
  EndpointRuns(EndpointRunOptions options, Comparison& comparison);

  /// Everything. After an error, the results from before it are in the report.
  Status run();
  Report report() const;

 private:
  /// A column: the mover of messages, and its method.
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
    MeasuredBy nccl;                                          ///< one more column
  };

  Status bulk();
  Status vectors();
  Status latency();
  Status small();
  Status peers();
  Status memory();
  Status compare(const Section& section);
  Result<Row> row(const Section& section, uint64_t bytes, std::vector<std::unique_ptr<RowMeter>>& benches);
  MeasuredBy nccl(const std::vector<uint64_t>& sizes);
  Result<std::unique_ptr<RowMeter>> connect(const EndSetup& setup) const { return comparison_.connect(setup, overrides_); }
  EndSetup endpoint(MemoryType memory) const;
  MemoryType best_memory() const { return comparison_.has_gpu() ? MemoryType::kCuda : MemoryType::kHost; }

  EndpointRunOptions options_;
  Comparison& comparison_;
  const bool quick_;
  EnvironmentOverrides overrides_;
  Report report_;
};

}  // namespace tcpx::bench
