#include "device/sum_launch.h"
#include "device/unpack_kernels.cuh"

namespace tcpx {
inline namespace sum_kernels {  // named, see cmake/compiler.cmake

constexpr uint32_t kSumWarp = 32, kLogWarps = 3, kSumWarps = 1u << kLogWarps, kLogThreads = 8;
static_assert(1u << kLogThreads == kSumThreads && kSumWarps * kSumWarp == kSumThreads);
constexpr uint32_t kSumRowsInFlight = 4;

template <class Operation>
__device__ uint64_t over_warp(uint64_t value, Operation operation) {
#pragma unroll
  for (uint32_t distance = kSumWarp / 2; distance != 0; distance /= 2)
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

/// One block for each piece. The lists lie in host memory: each block fetches its entries over the bus once.
template <bool kCopies>
__global__ void __launch_bounds__(kSumThreads)
    sum_pieces(const KernelSegment* segments, SumPiece* pieces, const __grid_constant__ SumFactors factors) {
  __shared__ SumPiece piece;
  __shared__ KernelSegment segment;
  __shared__ uint64_t of_warps[kSumWarps];
  const uint32_t thread = threadIdx.x;
  if (thread == 0) piece = pieces[blockIdx.x];
  if (kCopies && thread == kSumWarp) segment = segments[blockIdx.x];
  __syncthreads();
  if constexpr (kCopies) {
    const Stretch own = piece_of(static_cast<uint32_t>(segment.bytes), thread / kSumWarp, kLogWarps);
    GpuWarp warp;
    copy_fragment<true, kSumRowsInFlight>(warp, segment.to + own.begin, segment.from + own.begin, own.count);
    __syncthreads();
  }
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
  sum_pieces<false><<<count, kSumThreads, 0, stream>>>(nullptr, pieces, factors);
  return cudaGetLastError();
}

cudaError_t launch_copy_and_sum(const KernelSegment* segments, SumPiece* pieces, uint32_t count, const SumFactors& factors,
                                cudaStream_t stream) {
  sum_pieces<true><<<count, kSumThreads, 0, stream>>>(segments, pieces, factors);
  return cudaGetLastError();
}

cudaError_t load_sum_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, sum_pieces<false>);
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, sum_pieces<true>);
}

}  // namespace tcpx
