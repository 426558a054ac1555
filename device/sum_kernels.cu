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

/// A piece, and where its bytes come from.
struct SumEntry {
  SumPiece piece;
  const std::byte* from;
};

template <bool kCopies>
__device__ SumEntry sum_entry_of(const SumList& list, uint32_t i) {
  if (list.piece_bytes == 0) return {list.pieces[i], kCopies ? list.segments[i].from : nullptr};
  const uint64_t at = uint64_t{i} * list.piece_bytes, left = list.whole.bytes - at;
  return {{list.whole.from + at, list.whole.position + at, left < list.piece_bytes ? left : list.piece_bytes},
          kCopies ? list.from + at : nullptr};
}

/// The block that comes last gives the sum to the host, which would take as long to add up those of thousands of blocks as NVLink to copy
/// some MiB.
__device__ void add_to_total(const SumList& list, uint64_t of_block) {
  SumTotal& total = *list.total;
  atomicAdd(&total.low, of_block & 0xffffffffu);
  atomicAdd(&total.high, of_block >> 32);
  __threadfence();  // who sees the count sees the sums
  if (atomicAdd(&total.blocks, 1u) != gridDim.x - 1) return;
  __threadfence();
  const uint64_t low = atomicExch(&total.low, 0), high = atomicExch(&total.high, 0);
  total.blocks = 0;
  // Read by CudaSegmentCopier once the stream's flag, which is written behind the kernel, has been seen.
  *list.sum = sum_add(low, sum_multiply(high, uint64_t{1} << 32));
}

/// One block for each piece. A list lies in host memory: each block fetches its entry over the bus once.
template <bool kCopies>
__global__ void __launch_bounds__(kSumThreads)
    sum_pieces(const __grid_constant__ SumList list, const __grid_constant__ SumFactors factors) {
  __shared__ SumEntry current;
  __shared__ uint64_t of_warps[kSumWarps];
  const uint32_t thread = threadIdx.x;
  if (thread == 0) current = sum_entry_of<kCopies>(list, blockIdx.x);
  __syncthreads();
  const SumPiece piece = current.piece;
  if constexpr (kCopies) {
    const Stretch own = piece_of(static_cast<uint32_t>(piece.bytes), thread / kSumWarp, kLogWarps);
    GpuWarp warp;
    copy_fragment<true, kSumRowsInFlight>(warp, const_cast<std::byte*>(piece.from) + own.begin, current.from + own.begin,
                                          own.count);
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
  if (thread == 0) add_to_total(list, sum_multiply(of_block, power));
}

}  // namespace sum_kernels

cudaError_t launch_sum_pieces(const SumList& list, bool copies, const SumFactors& factors, cudaStream_t stream) {
  if (copies) {
    sum_pieces<true><<<list.count, kSumThreads, 0, stream>>>(list, factors);
  } else {
    sum_pieces<false><<<list.count, kSumThreads, 0, stream>>>(list, factors);
  }
  return cudaGetLastError();
}

cudaError_t load_sum_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, sum_pieces<false>);
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, sum_pieces<true>);
}

}  // namespace tcpx
