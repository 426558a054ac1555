#include "device/pattern_kernels.h"

#include <algorithm>

namespace tcpx {
inline namespace pattern_kernels {  // named, see cmake/compiler.cmake

constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 4096;

/// Data of any length and alignment: bytes up to an aligned word, aligned words, the remaining bytes.
struct Parts {
  size_t head;
  size_t words;
  size_t tail;
};

__host__ __device__ Parts parts_of(const std::byte* data, size_t bytes) {
  const size_t to_word = (0 - reinterpret_cast<uintptr_t>(data)) % kPatternWordBytes;
  const size_t head = to_word < bytes ? to_word : bytes;
  const size_t words = (bytes - head) / kPatternWordBytes;
  return {head, words, bytes - head - words * kPatternWordBytes};
}

__device__ std::byte pattern_byte(uint64_t seed, uint64_t position) {
  return static_cast<std::byte>(pattern_at(seed, position) & 0xff);
}

__device__ size_t thread_index() {
  return size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__device__ size_t thread_count() {
  return size_t{gridDim.x} * blockDim.x;
}

/// Calls `edge(i)` for the bytes before and after the words; there are at most 14.
template <class Edge>
__device__ void for_edges(const Parts& parts, size_t bytes, Edge edge) {
  const size_t thread = thread_index();
  if (thread < parts.head) edge(thread);
  if (thread < parts.tail) edge(bytes - parts.tail + thread);
}

__global__ void fill(std::byte* data, size_t bytes, uint64_t seed, uint64_t offset) {
  const Parts parts = parts_of(data, bytes);
  uint64_t* words = reinterpret_cast<uint64_t*>(data + parts.head);
  for (size_t i = thread_index(); i < parts.words; i += thread_count()) {
    words[i] = pattern_at(seed, offset + parts.head + i * kPatternWordBytes);
  }
  for_edges(parts, bytes, [&](size_t i) { data[i] = pattern_byte(seed, offset + i); });
}

__device__ void report(PatternCheck* check, uint64_t wrong, uint64_t first) {
  atomicAdd(reinterpret_cast<unsigned long long*>(&check->wrong), static_cast<unsigned long long>(wrong));
  atomicMin(reinterpret_cast<unsigned long long*>(&check->first_wrong), static_cast<unsigned long long>(first));
}

__global__ void compare(const std::byte* data, size_t bytes, uint64_t seed, uint64_t offset, PatternCheck* check) {
  const Parts parts = parts_of(data, bytes);
  const uint64_t* words = reinterpret_cast<const uint64_t*>(data + parts.head);
  uint64_t wrong = 0, first = ~uint64_t{0};
  const auto found_at = [&](size_t i) {
    if (wrong++ == 0 || i < first) first = i;
  };
  for (size_t i = thread_index(); i < parts.words; i += thread_count()) {
    const size_t at = parts.head + i * kPatternWordBytes;
    const uint64_t difference = words[i] ^ pattern_at(seed, offset + at);
    if (difference == 0) continue;
    for (size_t b = 0; b < kPatternWordBytes; ++b) {
      if ((difference >> (8 * b) & 0xff) != 0) found_at(at + b);
    }
  }
  for_edges(parts, bytes, [&](size_t i) {
    if (data[i] != pattern_byte(seed, offset + i)) found_at(i);
  });
  // Usually nothing is wrong, and that costs no atomic operation.
  if (wrong != 0) report(check, wrong, first);
}

unsigned blocks_for(size_t bytes) {
  return static_cast<unsigned>(std::clamp<size_t>(bytes / kPatternWordBytes / kThreads, 1, kMostBlocks));
}

}  // namespace pattern_kernels

cudaError_t launch_pattern_fill(std::byte* data, size_t bytes, uint64_t seed, uint64_t offset, cudaStream_t stream) {
  fill<<<blocks_for(bytes), kThreads, 0, stream>>>(data, bytes, seed, offset);
  return cudaGetLastError();
}

cudaError_t launch_pattern_check(const std::byte* data, size_t bytes, uint64_t seed, uint64_t offset, PatternCheck* check,
                                 cudaStream_t stream) {
  compare<<<blocks_for(bytes), kThreads, 0, stream>>>(data, bytes, seed, offset, check);
  return cudaGetLastError();
}

}  // namespace tcpx
