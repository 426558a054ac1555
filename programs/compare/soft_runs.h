// All measurements of bench_soft_plugin, in their order: for each kind of memory and each number of data sockets two fresh
// processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "programs/compare/comparison.h"

namespace tcpx::bench {

enum class Memory { kHost, kGpu };

struct SoftRunOptions {
  std::vector<uint64_t> sizes = {8, 4 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  uint64_t largest_ping_pong = 1 << 20;
  std::vector<uint32_t> sockets;  ///< empty: 1, 4, 8, 16, as far as the software plugin can
  std::vector<Memory> memory;     ///< empty: host, and that of a GPU where there is one
  uint64_t request_bytes = 4 << 20;
  bool pipeline = true;               ///< measure the pipeline beside the bare plugin
  std::vector<uint32_t> channels;     ///< of the pipeline, 1 ... kMaxChannels; empty: 1, and 4 on a machine of 16 cores or more
  std::vector<std::string> unpack;    ///< as UCCL_TCPX_UNPACK_IMPL names them; empty: all, where there is a GPU
  std::vector<uint64_t> long_chunks;  ///< chunks of the long transfers; empty: none
  std::string plugin;                 ///< library; "": the software plugin of this build
};

class SoftRuns {
 public:
  SoftRuns(SoftRunOptions options, Comparison& comparison);

  /// Everything. After an error, the results from before it are in the report.
  Status run();
  Report report() const;

 private:
  Status raw(uint32_t streams);
  Status raw_ping_pong();
  /// The plugin driven bare, and beside it the pipeline with every number of channels that divides `sockets`.
  Status plugin(Memory memory, uint32_t sockets);
  Status unpack(const std::string& kind);
  Status long_transfers(Memory memory);
  Result<EndSetup> plugin_setup(EndSetup::Kind kind, Memory memory) const;
  /// Those of `long_chunks` that this machine has memory for.
  Result<std::vector<uint64_t>> fitting_chunks(Memory memory);
  std::string name_of(Memory memory) const;
  std::vector<uint64_t> ping_pong_sizes() const;
  /// Measures a row into `rows` under `key` and says what came out.
  Status row(RowMeter& bench, const std::string& who, Pattern pattern, uint64_t bytes, MeasuredBy& rows,
             std::optional<uint64_t> key = std::nullopt);

  SoftRunOptions options_;
  Comparison& comparison_;
  SoftResults results_;
};

}  // namespace tcpx::bench
