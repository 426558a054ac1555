#include "device/unpack_launch.h"

#include <cuda_runtime.h>

#include "device/unpack_kernels.cuh"

namespace tcpx {
inline namespace unpack_launch {  // named, see cmake/compiler.cmake

using Kernel = void (*)(const KernelFragment*, uint32_t, uint32_t, uint32_t, const std::byte*);

/// The instances for UnpackKernel. Rows in flight trade off against registers, and so against blocks per multiprocessor: these
/// pairs were the fastest of those tried (docs/field_notes.md).
Kernel kernel_of(UnpackKernel kernel) {
  switch (kernel) {
    case UnpackKernel::kPages:
      return unpack_tiles<false, 2, threads_of(UnpackKernel::kPages), 4>;
    case UnpackKernel::kShiftedPages:
      return unpack_tiles<true, 4, threads_of(UnpackKernel::kShiftedPages), 4>;
    case UnpackKernel::kSegments:
      return unpack_tiles<true, 3, threads_of(UnpackKernel::kSegments), 10>;
    case UnpackKernel::kFewBlocks:
      return unpack_stream<false, 8, threads_of(UnpackKernel::kFewBlocks)>;
    case UnpackKernel::kFewBlocksShifted:
      return unpack_stream<true, 4, threads_of(UnpackKernel::kFewBlocksShifted)>;
  }
  return nullptr;
}

}  // namespace unpack_launch

cudaError_t load_unpack_kernels() {
  for (const UnpackKernel kernel : kUnpackKernels) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel_of(kernel));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_unpack(const LaunchPolicy& policy, const UnpackLaunch& launch, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(policy.blocks);
  config.blockDim = dim3(policy.threads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel_of(policy.kernel), launch.fragments, launch.fragment_count, policy.pieces_log2,
                            policy.pieces_per_warp, launch.pool);
}

}  // namespace tcpx
