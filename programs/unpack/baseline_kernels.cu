#include "programs/unpack/baseline_kernels.h"

#include <cuda_runtime.h>

#include <cub/device/device_memcpy.cuh>

namespace tcpx {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kThreads = 512;
constexpr uint32_t kStepBytes = 16;  // moved by a lane at a time

__device__ uint32_t joined_alignment(const BaselineEntry& entry) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(entry.source) | reinterpret_cast<uintptr_t>(entry.destination)) % 16;
}

__global__ void simple_warp_loop(const BaselineEntry* entries, uint32_t count) {
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t warps = gridDim.x * blockDim.x / kLanes;
  for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes; i < count; i += warps) {
    const BaselineEntry entry = entries[i];
    const uint32_t words = joined_alignment(entry) == 0 ? entry.len / kStepBytes : 0;
    const uint4* from = reinterpret_cast<const uint4*>(entry.source);
    uint4* to = reinterpret_cast<uint4*>(entry.destination);
    constexpr uint32_t kInFlight = 4;
    for (uint32_t word = lane; word < words; word += kInFlight * kLanes) {
      uint4 held[kInFlight];
#pragma unroll
      for (uint32_t u = 0; u < kInFlight; ++u) {
        if (word + u * kLanes < words) held[u] = from[word + u * kLanes];
      }
#pragma unroll
      for (uint32_t u = 0; u < kInFlight; ++u) {
        if (word + u * kLanes < words) to[word + u * kLanes] = held[u];
      }
    }
    for (uint32_t at = words * kStepBytes + lane; at < entry.len; at += kLanes) entry.destination[at] = entry.source[at];
  }
}

template <class Part>
__device__ void copy_steps(const BaselineEntry& entry, uint32_t lane) {
  constexpr uint32_t kParts = kStepBytes / sizeof(Part);
  for (uint32_t at = lane * kStepBytes; at + kStepBytes <= entry.len; at += kLanes * kStepBytes) {
    const volatile Part* from = reinterpret_cast<const volatile Part*>(entry.source + at);
    Part held[kParts];
#pragma unroll
    for (uint32_t i = 0; i < kParts; ++i) held[i] = from[i];
#pragma unroll
    for (uint32_t i = 0; i < kParts; ++i) reinterpret_cast<Part*>(entry.destination + at)[i] = held[i];
  }
}

__global__ void nccl_like_warp_loop(const BaselineEntry* entries, uint32_t count) {
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t warps = gridDim.x * blockDim.x / kLanes;
  for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes; i < count; i += warps) {
    const BaselineEntry entry = entries[i];
    const uint32_t alignment = joined_alignment(entry);
    if (alignment % 8 == 0) {
      copy_steps<uint64_t>(entry, lane);
    } else if (alignment % 4 == 0) {
      copy_steps<uint32_t>(entry, lane);
    } else if (alignment % 2 == 0) {
      copy_steps<uint16_t>(entry, lane);
    } else {
      copy_steps<uint8_t>(entry, lane);
    }
    const uint32_t done = entry.len / kStepBytes * kStepBytes;
    if (lane < entry.len - done) entry.destination[done + lane] = entry.source[done + lane];
  }
}

__device__ uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void keep_busy(uint64_t ns) {
  const uint64_t begin = now_ns();
  while (now_ns() - begin < ns) {
  }
}

__global__ void nothing() {}

}  // namespace

cudaError_t launch_warp_loop(WarpLoop kind, uint32_t blocks, const BaselineEntry* entries, uint32_t count, cudaStream_t stream) {
  const auto kernel = kind == WarpLoop::kSimple ? simple_warp_loop : nccl_like_warp_loop;
  kernel<<<blocks, kThreads, 0, stream>>>(entries, count);
  return cudaGetLastError();
}

cudaError_t launch_cub_batch(void* scratch, size_t& scratch_bytes, const void* const* sources, void* const* destinations,
                             const uint32_t* lengths, uint32_t count, cudaStream_t stream) {
  return cub::DeviceMemcpy::Batched(scratch, scratch_bytes, sources, destinations, lengths, count, stream);
}

cudaError_t launch_delay(uint64_t ns, cudaStream_t stream) {
  keep_busy<<<1, 1, 0, stream>>>(ns);
  return cudaGetLastError();
}

cudaError_t launch_empty_kernel(cudaStream_t stream) {
  nothing<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace tcpx
