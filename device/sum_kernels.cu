#include "device/sum_launch.h"

namespace tcpx {
inline namespace sum_kernels {  // named, see cmake/compiler.cmake

constexpr uint32_t kSumWarp = 32, kSumWarps = kSumThreads / kSumWarp, kLogThreads = 8;
static_assert(1u << kLogThreads == kSumThreads);

template <class Operation>
__device__ uint64_t over_warp(uint64_t value, Operation operation) {
#pragma unroll
  for (uint32_t distance = kSumWarp / 2; distance != 0; distance /= 2)
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

/// One block for each piece. The list lies in host memory: each block fetches its entry over the bus once.
__global__ void __launch_bounds__(kSumThreads) sum_pieces(SumPiece* pieces, const __grid_constant__ SumFactors factors) {
  __shared__ SumPiece piece;
  __shared__ uint64_t of_warps[kSumWarps];
  const uint32_t thread = threadIdx.x;
  if (thread == 0) piece = pieces[blockIdx.x];
  __syncthreads();
  const uint64_t own =
      sum_multiply(sum_of_thread(PieceWords(piece), thread, factors.squares[kLogThreads]), factors.in_block[thread]);
  const uint64_t of_warp = over_warp(own, sum_add);
  if (thread % kSumWarp == 0) of_warps[thread / kSumWarp] = of_warp;
  __syncthreads();
  if (thread >= kSumWarp) return;
  const uint64_t of_block = over_warp(thread < kSumWarps ? of_warps[thread] : 0, sum_add);
  // The last word of the string is multiplied once.
  const uint64_t behind = factors.words - words_up_to(piece.position + piece.bytes) + 1;
  const uint64_t power = over_warp(power_of_thread(factors.squares, behind, thread), sum_multiply);
  // Read by CudaSegmentCopier once the stream's flag, which is written behind the kernel, has been seen.
  if (thread == 0) pieces[blockIdx.x].position = sum_multiply(of_block, power);
}

}  // namespace sum_kernels

cudaError_t launch_sum_pieces(SumPiece* pieces, uint32_t count, const SumFactors& factors, cudaStream_t stream) {
  sum_pieces<<<count, kSumThreads, 0, stream>>>(pieces, factors);
  return cudaGetLastError();
}

cudaError_t load_sum_kernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, sum_pieces);
}

}  // namespace tcpx
