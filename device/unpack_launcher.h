// Gathers received messages by GPU kernel: any number of requests in one launch, several launches in flight, on its own stream or
// on a caller's.
//
// A launch allocates nothing, uploads nothing and waits for nothing. Its list of fragments is written straight into a ring of
// mapped pinned memory, allocated at setup, and the kernel reads it there, over the bus. That is faster on an H200: a list of
// 16384 fragments read from mapped memory takes the kernel 1.3 us more than one in device memory, while an upload takes a copy
// call before the launch, 2.9 us of host time and 5.3 us until the kernel can start.
//
// A small message that is contiguous in mapped host memory needs no kernel: for few bytes the copy engine is done after 5.3 us
// where a kernel takes 10.2. For large ones, received while it copies, the engine was slower (25 to 28 GB/s against 34 to 36).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "device/cuda_handles.h"
#include "device/event_ring.h"
#include "device/list_ring.h"
#include "device/unpack_launch.h"
#include "device/unpack_list.h"
#include "rx/unpacker.h"
#include "tcpx/status.h"

namespace tcpx {

/// Counters of a launcher.
struct LaunchStats {
  uint64_t launches = 0;  ///< of the kernel
  uint64_t copies = 0;    ///< blocks copied by the copy engine instead
  uint64_t requests = 0;  ///< descriptor blocks
  uint64_t fragments = 0;
  uint64_t bytes = 0;
  uint64_t errors = 0;            ///< calls that returned an error, except kExhausted and kTimeout
  uint64_t timed_bytes = 0;       ///< when profiling: bytes of the tickets seen done
  Duration device_time{0};        ///< and their time, from the start of a ticket's first launch to the end of its last
  double gb_per_second() const {  ///< 0 when nothing was timed
    return device_time.count() == 0 ? 0 : static_cast<double>(timed_bytes) / static_cast<double>(device_time.count());
  }
};

/// One line for humans.
std::string to_text(const LaunchStats& stats);

/// One thread at a time.
class UnpackLauncher {
 public:
  struct Config {
    uint32_t block_budget = 0;         ///< most thread blocks of one launch; 0: no limit
    uint32_t in_flight = kQueueDepth;  ///< most tickets in flight, from 1
    /// Fragments in flight, from 1: 16 bytes of pinned memory each. The default is room for the largest batch.
    uint32_t list_capacity = kMaxBatchBlocks * kMaxFragments;
    bool profile = false;       ///< measures GPU time: two timed events per ticket
    bool log_launches = false;  ///< profiles, and logs a notice for every ticket with bytes when it is found done
    /// Makes a launch. Tests replace it to observe launches and to make them fail.
    std::function<cudaError_t(const LaunchPolicy&, const UnpackLaunch&, cudaStream_t)> launch = launch_unpack;

    /// The defaults, overridden by UCCL_TCPX_UNPACK_BLOCKS and UCCL_TCPX_LAUNCH_DEBUG. @return kBadConfig.
    static Result<Config> from_environment();
  };

  /// @param memory that of the GPU; gives the memory for the lists. Must outlive the launcher.
  /// @return kUnsupported when there is no usable GPU or this build has no code for it; kInvalidArgument for no such device, or a
  ///         config with 0 where it requires "from 1"; kCuda.
  static Result<std::unique_ptr<UnpackLauncher>> create(int device, MemoryOps& memory, Config config);
  UnpackLauncher(const UnpackLauncher&) = delete;
  UnpackLauncher& operator=(const UnpackLauncher&) = delete;
  /// Waits for work in flight.
  ~UnpackLauncher() = default;

  /// Starts copying every fragment of every block, as Unpacker::submit, but for any number of blocks from 1. Blocks with one pool
  /// base are one launch; where the base changes from block to block a new launch begins. Pools and destinations must be
  /// addressable by kernels on the device: its own memory, or mapped host memory.
  /// @return one ticket for all. kExhausted, before anything is started, when too many tickets or fragments are in flight: query
  ///         the oldest ticket and try again. kInvalidArgument for no blocks or more fragments than Config::list_capacity. kCuda
  ///         with the native code, which sticks to this launcher, after the work in flight has finished.
  Result<UnpackTicket> launch(std::span<const DescriptorBlock> blocks);

  /// On a stream of the caller's: the copy begins after the work that `stream` holds, and later work there begins after the copy.
  /// The stream may be destroyed while the copy runs. Copies on different streams may finish in any order; tickets are reported
  /// done in order.
  /// @param stream one of the launcher's device. kInvalidArgument while it is being captured: the list is gone when the graph
  /// runs.
  Result<UnpackTicket> launch(std::span<const DescriptorBlock> blocks, StreamView stream);

  /// launch, then wait. Also waits for room, so kExhausted does not happen.
  /// @return as launch. kTimeout when `deadline` has passed: the copy may still be running, until a later ticket is done.
  Status launch_sync(std::span<const DescriptorBlock> blocks, Deadline deadline);

  /// As Unpacker::query. The error that stuck, or kInvalidArgument for a ticket that was never issued.
  Result<bool> query(UnpackTicket ticket);
  /// ok when the ticket is done; else as query. kTimeout leaves the ticket as it is: it may be waited for again.
  Status wait(UnpackTicket ticket, Deadline deadline);

  const LaunchStats& stats() const { return stats_; }

 private:
  /// The work of a slot's ticket.
  struct Work {
    UnpackTicket ticket{};
    size_t list_held = 0;
    uint64_t launches = 0;
    uint64_t copies = 0;
    uint64_t requests = 0;
    uint64_t fragments = 0;
    uint64_t bytes = 0;
    LaunchPolicy policy{};       // of the last launch
    AlignmentClass alignment{};  // the same
    bool is_empty() const { return launches + copies == 0; }
  };

  UnpackLauncher(MemoryOps& memory, MemoryBuffer lists, std::unique_ptr<EventRing> ring, Config config);
  Result<UnpackTicket> start(std::span<const DescriptorBlock> blocks, StreamView stream);
  /// Starts the launches and copies of `work`, whose list begins at entry `first` of the ring.
  Status launch_runs(std::span<const DescriptorBlock> blocks, size_t first, StreamView stream, Work* work);
  Status copy_blocks(std::span<const DescriptorBlock> blocks, StreamView stream, Work* work);
  PoolMemory pool_memory(const std::byte* pool);
  /// Called when the ticket of `slot` is done.
  Status retire(size_t slot);
  static std::string how(const Work& work);
  void log_work(const Work& work, Duration time) const;

  const Config config_;
  MemoryOps& memory_;
  const MemoryBuffer lists_;  // entries of list_ring_: KernelFragment
  ListRing list_ring_;
  std::vector<Work> works_;  // one per slot of ring_
  UnpackTicket newest_{};    // meaningful when something is in flight
  LaunchStats stats_;
  const std::byte* known_pool_ = nullptr;
  PoolMemory known_pool_memory_ = PoolMemory::kDevice;
  const std::unique_ptr<EventRing> ring_;  // last: its destructor waits for the launches that read lists_
};

}  // namespace tcpx
