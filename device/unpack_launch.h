// Launching the unpack kernel. Seen by nvcc too, which compiles it as C++17: so it repeats the layout of a fragment instead of
// including tcpx/types.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/unpack_policy.h"

namespace tcpx {

/// Fragment (tcpx/types.h) as the kernel reads it: one 16-byte load. kernel_unpacker.cc checks that the two agree.
struct alignas(16) KernelFragment {
  uint32_t src_off;
  uint32_t len;
  uint64_t dst_off;
};

/// All addresses are the GPU's; what they point to must stay until the launch has finished.
struct UnpackLaunch {
  const KernelFragment* fragments;  ///< mapped host memory or device memory
  uint32_t fragment_count;
  const std::byte* pool;
  std::byte* destination;
};

/// Loads the kernels' code onto the current device. Done at setup, because the first launch would otherwise do it, and loading
/// can wait for kernels that are running.
cudaError_t load_unpack_kernels();

/// Starts one launch on `stream`, whose device is current; does not wait. `policy.blocks` must not be 0.
cudaError_t launch_unpack(const LaunchPolicy& policy, const UnpackLaunch& launch, cudaStream_t stream);

}  // namespace tcpx
