#include <algorithm>

#include "device/segment_launch.h"
#include "device/unpack_kernels.cuh"

namespace tcpx {
inline namespace segment_kernels {  // named, see cmake/compiler.cmake

constexpr uint32_t kListThreads = 256;
constexpr uint32_t kListWarps = kListThreads / kWarpThreads;
constexpr uint32_t kMostPerWarp = 8;
constexpr uint32_t kManyWarps = 4096;  // about half of what a large GPU holds at once
constexpr uint32_t kRowsInFlight = 4;

__device__ void copy_segment(uint64_t to, uint64_t from, uint32_t bytes) {
  GpuWarp warp;
  copy_fragment<true, kRowsInFlight>(warp, reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from), bytes);
}

/// Each block takes consecutive segments of the list, `per_warp` (1 ... kMostPerWarp) for each warp, and fetches them over the
/// bus with one access.
__global__ void __launch_bounds__(kListThreads) copy_list(const uint64_t* list, uint32_t count, uint32_t per_warp) {
  __shared__ uint64_t words[kListWarps * kMostPerWarp * kKernelSegmentWords];
  const uint32_t begin = blockIdx.x * kListWarps * per_warp;
  const uint32_t here = count - begin < kListWarps * per_warp ? count - begin : kListWarps * per_warp;
  for (uint32_t i = threadIdx.x; i < here * kKernelSegmentWords; i += kListThreads) {
    words[i] = list[uint64_t{begin} * kKernelSegmentWords + i];
  }
  __syncthreads();
#pragma unroll 1  // the copy itself is unrolled
  for (uint32_t i = threadIdx.x / kWarpThreads; i < here; i += kListWarps) {
    const uint64_t* const segment = words + i * kKernelSegmentWords;
    copy_segment(segment[0], segment[1], static_cast<uint32_t>(segment[2]));
  }
}

constexpr uint32_t kResidentThreads = 512;
constexpr uint32_t kResidentWarpsLog2 = 4;
static_assert(kResidentThreads == kWarpThreads << kResidentWarpsLog2);

/// Loads two adjacent words, each atomically, bypassing every cache of the GPU.
__device__ uint4 load_pair(const TaggedWord* pair) {
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(pair)
               : "memory");
  return value;
}

__device__ void store_pair(TaggedWord* pair, const uint4& value) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(pair), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

__device__ void store_number(uint32_t* to, uint32_t number) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(number) : "memory");
}

__device__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// The first warp waits for the request and leaves its data in `words`. False when none came for `patience_ns`, and at `end`.
__device__ bool await_request(const ResidentBox& box, uint32_t request, uint64_t patience_ns, uint64_t end, uint32_t* words) {
  const uint32_t lane = threadIdx.x;
  uint64_t until = 0;
  for (;;) {
    const uint64_t now = __shfl_sync(kWholeWarp, now_ns(), 0);
    if (now >= end) return false;
    const uint4 pair = load_pair(box.request + 2 * lane);
    if (__all_sync(kWholeWarp, pair.y == request && pair.w == request)) {
      words[2 * lane] = pair.x;
      words[2 * lane + 1] = pair.z;
      return true;
    }
    if (until == 0) until = now + patience_ns;
    if (now >= until) return false;
  }
}

/// Returns the request's mode; `words` may have changed.
__device__ ResidentMode serve(ResidentBox& box, uint32_t request, uint32_t* words) {
  const uint64_t to = words[0] | uint64_t{words[1]} << 32;
  const uint64_t from = words[2] | uint64_t{words[3]} << 32;
  const uint32_t bytes = words[4];
  const auto mode = static_cast<ResidentMode>(words[5]);
  if (mode == ResidentMode::kInRequest) {
    const auto* const payload = reinterpret_cast<const std::byte*>(words + kRequestHeaderWords);
    if (threadIdx.x < bytes) reinterpret_cast<std::byte*>(to)[threadIdx.x] = payload[threadIdx.x];
  } else if (mode == ResidentMode::kInAnswer) {
    __syncthreads();  // all have read the header before the payload replaces it
    if (threadIdx.x < bytes) {
      reinterpret_cast<std::byte*>(words)[threadIdx.x] = reinterpret_cast<const std::byte*>(from)[threadIdx.x];
    }
    __syncthreads();
    if (threadIdx.x < kWarpThreads && threadIdx.x * 8 < bytes) {
      store_pair(box.answer + 2 * threadIdx.x, make_uint4(words[2 * threadIdx.x], request, words[2 * threadIdx.x + 1], request));
    }
  } else {
    const Stretch own = piece_of(bytes, threadIdx.x / kWarpThreads, kResidentWarpsLog2);
    copy_segment(to + own.begin, from + own.begin, own.count);
  }
  return mode;
}

__global__ void __launch_bounds__(kResidentThreads, 1) serve_requests(ResidentLaunch launch) {
  __shared__ uint32_t words[kResidentWords];
  __shared__ bool leaves;
  ResidentMemory& memory = *launch.memory;
  if (threadIdx.x == 0) store_number(&memory.started, launch.launch);
  const uint64_t end = __shfl_sync(kWholeWarp, now_ns(), 0) + launch.life_ns;
  for (uint32_t request = launch.request;; ++request) {
    ResidentBox& box = memory.boxes[request % kResidentBoxes];
    if (threadIdx.x < kWarpThreads) {
      const bool came = await_request(box, request, launch.patience_ns, end, words);
      // Pairs with the host's release of the request: the loads of all threads after the barrier see everything written before
      // it, by the host or by GPU work that the host saw end.
      __threadfence_system();
      if (threadIdx.x == 0) leaves = !came;
    }
    __syncthreads();
    if (leaves) break;
    const ResidentMode mode = serve(box, request, words);
    __syncthreads();
    if (threadIdx.x == 0) {
      // Pairs with the host's acquire of `done`; covers the writes of all threads before the barrier. An answer's words need no
      // ordering.
      if (mode != ResidentMode::kInAnswer) __threadfence_system();
      store_number(&memory.done, request);
    }
  }
  if (threadIdx.x == 0) {
    __threadfence_system();  // a reader that sees `gone` sees all writes before it
    store_number(&memory.gone, launch.launch);
  }
}

}  // namespace segment_kernels

cudaError_t launch_copy_segments(const KernelSegment* segments, uint32_t count, cudaStream_t stream) {
  const uint32_t per_warp = std::clamp(count / kManyWarps, 1u, kMostPerWarp);
  const uint32_t blocks = (count - 1) / (kListWarps * per_warp) + 1;
  copy_list<<<blocks, kListThreads, 0, stream>>>(reinterpret_cast<const uint64_t*>(segments), count, per_warp);
  return cudaGetLastError();
}

cudaError_t launch_resident_copier(const ResidentLaunch& launch, cudaStream_t stream) {
  serve_requests<<<1, kResidentThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t load_segment_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, copy_list);
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, serve_requests);
}

}  // namespace tcpx
