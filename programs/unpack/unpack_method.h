// One way to gather the fragments of a workload, as bench_unpack times it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "device/cuda_handles.h"
#include "programs/unpack/unpack_workload.h"

namespace tcpx::bench {

class UnpackMethod {
 public:
  virtual ~UnpackMethod() = default;

  /// As it stands in the tables.
  virtual std::string name() const = 0;
  /// Once per workload, not timed: the preparations that a user of this method would keep. The workload outlives its use.
  virtual Status prepare(const UnpackWorkload& workload) = 0;
  /// Enqueues the gather on `stream`.
  virtual Status run(StreamView stream) = 0;
  /// Seconds of the last finished run as the method measured them itself, because its host work before the first operation does
  /// not count; none: the caller's events stand right around run.
  virtual std::optional<double> own_seconds() { return std::nullopt; }
  /// Enqueuing takes so long on the host that it cannot be hidden behind other work of the GPU.
  virtual bool host_bound() const { return false; }
  /// True when the gathered bytes can be right: false for the contiguous copy, which moves other bytes of the same number.
  virtual bool gathers() const { return true; }
};

/// One copy of contiguous bytes between any two memories.
Status copy_contiguously(std::byte* to, const std::byte* from, uint64_t bytes, StreamView stream);

/// The ceilings and the other ways there are (unpack_baselines.cc). All on the current device.
std::unique_ptr<UnpackMethod> make_contiguous_copy();
std::unique_ptr<UnpackMethod> make_copy_per_fragment();
std::unique_ptr<UnpackMethod> make_cub_batch();
/// A warp takes a fragment at a time, 16 bytes per lane and access where both addresses allow it, else byte by byte.
std::unique_ptr<UnpackMethod> make_simple_warp_loop(uint32_t blocks);
/// What NCCL's device code does when it unpacks (NCCL src/device/network/unpack/unpack.h): 16 bytes per lane and step through
/// volatile accesses of the widest kind that both addresses allow.
std::unique_ptr<UnpackMethod> make_nccl_like_warp_loop(uint32_t blocks);

}  // namespace tcpx::bench
