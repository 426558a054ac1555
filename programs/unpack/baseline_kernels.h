// The kernels of the baselines and of the clock. Seen by nvcc, which compiles it as C++17: so it includes none of our C++20
// headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tcpx {

/// A fragment with both addresses. Lists of them lie in device memory, which costs these methods an upload that is not timed.
struct BaselineEntry {
  const std::byte* source;
  std::byte* destination;
  uint32_t len;
};

/// A warp takes a fragment at a time.
enum class WarpLoop {
  kSimple,  ///< 16 bytes per lane and access where both addresses allow it, else byte by byte
  /// As NCCL's device code unpacks (NCCL src/device/network/unpack/unpack.h): 16 bytes per lane and step through volatile
  /// accesses of the widest kind that both addresses allow.
  kNcclLike,
};

/// All start their work on `stream` and do not wait.
cudaError_t launch_warp_loop(WarpLoop kind, uint32_t blocks, const BaselineEntry* entries, uint32_t count, cudaStream_t stream);
/// cub::DeviceMemcpy::Batched. With scratch == nullptr it only says how much of it is needed.
cudaError_t launch_cub_batch(void* scratch, size_t& scratch_bytes, const void* const* sources, void* const* destinations,
                             const uint32_t* lengths, uint32_t count, cudaStream_t stream);
/// One thread that runs for `ns`.
cudaError_t launch_delay(uint64_t ns, cudaStream_t stream);
cudaError_t launch_empty_kernel(cudaStream_t stream);

}  // namespace tcpx
