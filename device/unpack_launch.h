// Launches the unpack kernel. Seen by nvcc too, which compiles it as C++17: so it does not include tcpx/types.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/unpack_policy.h"

namespace tcpx {

/// A fragment as the kernel reads it, in one 16-byte load. The destination is an address, so that fragments of requests with
/// different destinations form one list.
struct alignas(16) KernelFragment {
  uint32_t src_off;  ///< from the launch's pool
  uint32_t len;      ///< bytes, from 1
  std::byte* destination;
};
static_assert(sizeof(KernelFragment) == 16);

/// All addresses are the GPU's; the memory must stay until the launch has finished.
struct UnpackLaunch {
  const KernelFragment* fragments;  ///< mapped host memory or device memory
  uint32_t fragment_count;
  const std::byte* pool;
};

/// Loads the kernels' code onto the current device. Done at setup, because otherwise the first launch would do it, and loading
/// can wait for running kernels.
cudaError_t load_unpack_kernels();

/// Starts one launch on `stream`, whose device is current; does not wait. `policy.blocks` must not be 0.
cudaError_t launch_unpack(const LaunchPolicy& policy, const UnpackLaunch& launch, cudaStream_t stream);

}  // namespace tcpx
