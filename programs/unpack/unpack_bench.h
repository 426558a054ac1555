// The measurements of bench_unpack, table by table. Every row is checked against the pool before its numbers count.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_ops.h"
#include "device/unpack_launcher.h"
#include "measure/report.h"
#include "measure/samples.h"
#include "programs/unpack/gpu_clock.h"
#include "programs/unpack/unpack_method.h"

namespace tcpx {

struct UnpackBenchOptions {
  int gpu = 0;
  uint64_t bytes = uint64_t{64} << 20;      ///< gathered by one operation
  uint64_t pool_bytes = uint64_t{1} << 30;  ///< in which the fragments lie permuted
  size_t samples = 21;                      ///< of what the GPU does alone; slow methods take the fewest that say something
};

/// One thread at a time. Two pools, in device memory and in mapped host memory, hold the same bytes.
class UnpackBench {
 public:
  /// @param stop set from outside (Ctrl-C): tables end early, with the rows they have.
  static Result<std::unique_ptr<UnpackBench>> create(const UnpackBenchOptions& options, MemoryOps& memory,
                                                     const std::atomic<bool>& stop);

  /// Rows: methods; columns: kinds of fragments; cells: GB/s of gathered bytes by GPU time, on an idle GPU.
  Result<Table> by_method();
  /// The same for the methods that matter, with everything enqueued before the GPU begins: no launch is waited for.
  Result<Table> by_method_queued();
  /// From a pool in mapped pinned host memory, as the software plugin has it.
  Result<Table> from_mapped_host();
  /// Rows: fragment lengths.
  Result<Table> by_fragment_bytes();
  /// Rows: numbers of blocks.
  Result<Table> by_blocks();
  /// 16 launches in flight on one stream, per launch.
  Result<Table> sustained();
  /// Microseconds of the host per call, and until an event is seen.
  Result<Table> costs();

 private:
  enum class Pool { kDevice, kMappedHost };

  UnpackBench(const UnpackBenchOptions& options, MemoryOps& memory, const std::atomic<bool>& stop)
      : options_(options), memory_(memory), stop_(stop) {}
  Status set_up();
  Result<UnpackWorkload> workload(const FragmentKind& kind, uint64_t bytes, Pool pool = Pool::kDevice);
  Result<std::unique_ptr<UnpackMethod>> kernel(std::string name, uint32_t block_budget);
  Result<std::unique_ptr<UnpackLauncher>> launcher(uint32_t block_budget, bool profile, uint32_t list_capacity);
  /// Runs `method` once and compares what it gathered.
  Status verify(UnpackMethod& method, const UnpackWorkload& workload);
  /// Compares what lies in the destination.
  Status check(const UnpackWorkload& workload);
  /// Of pages, each aligned.
  Result<UnpackWorkload> pages(uint64_t bytes, Pool pool = Pool::kDevice) {
    return workload({"4096 B", 4096, FragmentKind::Source::kAligned}, bytes, pool);
  }
  /// GB/s. Verifies first.
  Result<Summary> rate(UnpackMethod& method, const UnpackWorkload& workload, bool queued);
  /// A row with one cell per kind.
  Result<Row> row(UnpackMethod& method, const std::vector<FragmentKind>& kinds, Pool pool, bool queued);
  /// The ceiling and, by name and most blocks, the kernel.
  Status add_kernels(std::vector<std::unique_ptr<UnpackMethod>>& methods, std::vector<std::pair<std::string, uint32_t>> kernels);
  Result<Table> table(std::string title, std::vector<std::unique_ptr<UnpackMethod>> methods, Pool pool, bool queued);
  /// The table of the ceiling, the kernel and both warp loops.
  Result<Table> main_methods(std::string title, std::string kernel_name, uint32_t loop_blocks, Pool pool, bool queued);
  void progress(const std::string& what) const;

  const UnpackBenchOptions options_;
  MemoryOps& memory_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<GpuClock> clock_;
  std::unique_ptr<CopyLane> lane_;
  MemoryBuffer device_pool_;
  MemoryBuffer mapped_pool_;  // also what the host compares with
  MemoryBuffer destination_;
  std::vector<std::byte> gathered_;
};

}  // namespace tcpx
