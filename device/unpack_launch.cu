#include "device/unpack_launch.h"

#include <cuda_runtime.h>

#include "device/unpack_kernels.cuh"

namespace tcpx {

cudaError_t load_unpack_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, unpack_kernel<false>);
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, unpack_kernel<true>);
}

cudaError_t launch_unpack(const LaunchPolicy& policy, const UnpackLaunch& launch, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(policy.blocks);
  config.blockDim = dim3(policy.threads);
  config.stream = stream;
  const auto kernel = policy.alignment == AlignmentClass::kCongruent ? unpack_kernel<false> : unpack_kernel<true>;
  return cudaLaunchKernelEx(&config, kernel, launch.fragments, launch.fragment_count, policy.pieces_per_fragment, launch.pool);
}

}  // namespace tcpx
