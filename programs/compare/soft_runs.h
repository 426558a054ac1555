// All measurements of bench_soft_plugin, in their order: for each kind of memory and each number of data sockets two fresh
// processes.
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

namespace tcpx::bench {

enum class Memory { kHost, kGpu };

struct SoftRunOptions {
  std::vector<uint64_t> sizes = {8, 4 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  uint64_t largest_ping_pong = 1 << 20;
  std::vector<uint32_t> sockets;  ///< empty: 1, 4, 8, 16, as far as the software plugin can
  std::vector<Memory> memory;     ///< empty: host, and that of a GPU where there is one
  std::pair<int, int> gpus{0, 0};
  uint64_t request_bytes = 4 << 20;
  bool pipeline = true;               ///< measure the pipeline beside the bare plugin
  std::vector<uint32_t> channels;     ///< of the pipeline, 1 ... kMaxChannels; empty: 1, and 4 on a machine of 16 cores or more
  std::vector<std::string> unpack;    ///< as UCCL_TCPX_UNPACK_IMPL names them; empty: all, where there is a GPU
  std::vector<uint64_t> long_chunks;  ///< chunks of the long transfers; empty: none
  std::string plugin;                 ///< library; "": the software plugin of this build
  RowPlan row;
  bool nccl = true;
  std::string nccl_script;
};

class SoftRuns {
 public:
  /// Called with each line of progress.
  using Say = std::function<void(const std::string&)>;

  /// The ends are told by NCCL_GPUDIRECTTCPX_SOCKET_IFNAME to use loopback, as often as there are channels, unless the user set
  /// it.
  /// @param stop ends the run early.
  SoftRuns(SoftRunOptions options, const std::atomic<bool>& stop, Say say);

  /// Everything. After an error, what was measured before it is in the report.
  Status run();
  const SoftResults& results() const { return results_; }
  Report report() const;

 private:
  Status raw(uint32_t streams);
  Status raw_ping_pong();
  /// The plugin driven bare, and beside it the pipeline with every number of channels that divides `sockets`.
  Status plugin(Memory memory, uint32_t sockets);
  Status unpack(const std::string& kind);
  Status long_transfers(Memory memory);
  void nccl();
  Result<std::unique_ptr<SoftBench>> connect(const EndSetup& setup, const EnvironmentOverrides& overrides) const;
  Result<EndSetup> plugin_setup(EndSetup::Kind kind, Memory memory) const;
  /// Those of `long_chunks` that this machine has memory for.
  Result<std::vector<uint64_t>> fitting_chunks(Memory memory);
  std::string name_of(Memory memory) const;
  std::vector<uint64_t> ping_pong_sizes() const;
  /// Measures a row into `rows` under `key` and says what came out.
  Status row(SoftBench& bench, const std::string& who, Pattern pattern, uint64_t bytes, MeasuredBy& rows,
             std::optional<uint64_t> key = std::nullopt);

  SoftRunOptions options_;
  const std::atomic<bool>& stop_;
  const Say say_;
  const bool has_gpu_;
  const bool user_chose_interfaces_;
  SoftResults results_;
  std::vector<std::string> devices_;
  std::map<std::string, std::string> notes_;  // for the report: what was left out, and why
};

}  // namespace tcpx::bench
