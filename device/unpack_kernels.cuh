// The unpack kernels: warps take pieces of fragments, fragment_copy.h moves the bytes.
//
// The list of fragments comes over the bus from mapped host memory, with a latency of more than a microsecond, so no warp ever
// waits for one entry: unpack_tiles fetches a block's share with one access, unpack_stream fetches ahead.
//
// List and payload were written before the launch (by the host, or by the NIC as the plugin reported), and a launch orders all
// such writes before the kernel: plain loads see them without a fence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/fragment_copy.h"
#include "device/unpack_launch.h"

namespace tcpx {

inline constexpr uint32_t kWholeWarp = 0xffffffffu;

/// Blocks of `threads` that are to fit in a multiprocessor at once: `wanted` of them, or as many as sm_75 has threads for.
constexpr uint32_t resident_blocks([[maybe_unused]] uint32_t threads, uint32_t wanted) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return wanted < 1024 / threads ? wanted : 1024 / threads;
#else
  return wanted;
#endif
}

/// One lane's view of the copying warp (fragment_copy.h), over memory that the GPU addresses.
class GpuWarp {
 public:
  using Row = CopyWord;
  using Bytes = std::byte;

  __device__ GpuWarp() : lane_(threadIdx.x % kWarpThreads) {}

  __device__ std::byte load_bytes(const std::byte* from, uint32_t count) const {
    std::byte value{};
    if (lane_ < count) value = from[lane_];
    return value;
  }
  __device__ void store_bytes(std::byte* to, uint32_t count, std::byte value) const {
    if (lane_ < count) to[lane_] = value;
  }
  __device__ CopyWord load_row(const std::byte* from, uint32_t row, uint32_t count) const {
    // Initialised for lanes beyond count too, which never store it: a register that a skipped load leaves unset is live from
    // the start of the kernel, which then needs more than twice the registers.
    CopyWord word{};
    if (row * kWarpThreads + lane_ < count) {
      const uint4 loaded = *(reinterpret_cast<const uint4*>(from) + lane_ + row * kWarpThreads);
      word = CopyWord{{loaded.x, loaded.y, loaded.z, loaded.w}};
    }
    return word;
  }
  __device__ void store_row(std::byte* to, uint32_t row, uint32_t count, const CopyWord& word) const {
    if (row * kWarpThreads + lane_ >= count) return;
    *(reinterpret_cast<uint4*>(to) + lane_ + row * kWarpThreads) =
        make_uint4(word.part[0], word.part[1], word.part[2], word.part[3]);
  }
  template <uint32_t kParts>
  __device__ CopyWord shifted_row(const CopyWord& low, const CopyWord& above, uint32_t bits) const {
    CopyWord high{};
    high.part[0] = next_lanes(low.part[0], above.part[0]);
    if (kParts > 0) high.part[1] = next_lanes(low.part[1], above.part[1]);
    if (kParts > 1) high.part[2] = next_lanes(low.part[2], above.part[2]);
    if (kParts > 2) high.part[3] = next_lanes(low.part[3], above.part[3]);
    return cut_word<kParts>(low, high, bits);
  }

 private:
  __device__ uint32_t next_lanes(uint32_t low, uint32_t above) const {
    return __shfl_sync(kWholeWarp, lane_ == 0 ? above : low, (lane_ + 1) % kWarpThreads);
  }

  const uint32_t lane_;
};

/// Loads an entry with one access.
__device__ inline uint4 load_entry(const KernelFragment* entry) {
  return *reinterpret_cast<const uint4*>(entry);
}

template <bool kShifts, uint32_t kRows>
__device__ inline void copy_piece(const uint4& entry, uint32_t piece, uint32_t pieces_log2, const std::byte* pool) {
  const Stretch own = piece_of(entry.y, piece & ((1u << pieces_log2) - 1), pieces_log2);
  auto* const destination = reinterpret_cast<std::byte*>(entry.z | uint64_t{entry.w} << 32);
  GpuWarp warp;
  copy_fragment<kShifts, kRows>(warp, destination + own.begin, pool + entry.x + own.begin, own.count);
}

/// One tile per block: its warps take consecutive pieces, pieces_per_warp each, and many blocks follow each other in the order
/// of the list. Blocks in order keep concurrent accesses close together, which suits DRAM.
/// @param pieces_per_warp 1 ... kMaxPiecesPerWarp
template <bool kShifts, uint32_t kRows, uint32_t kThreads, uint32_t kMinBlocks>
__global__ void __launch_bounds__(kThreads, resident_blocks(kThreads, kMinBlocks))
    unpack_tiles(const KernelFragment* list, uint32_t count, uint32_t pieces_log2, uint32_t pieces_per_warp,
                 const std::byte* pool) {
  constexpr uint32_t kWarps = kThreads / kWarpThreads;
  __shared__ uint4 entries[kWarps * kMaxPiecesPerWarp];
  const uint32_t tile = kWarps * pieces_per_warp;
  const uint32_t begin = blockIdx.x * tile;
  const uint32_t left = (count << pieces_log2) - begin;
  const uint32_t end = begin + (left < tile ? left : tile);
  const uint32_t first = begin >> pieces_log2;
  const uint32_t last = (end - 1) >> pieces_log2;
  if (threadIdx.x <= last - first) entries[threadIdx.x] = load_entry(list + first + threadIdx.x);
  __syncthreads();
#pragma unroll 1  // the copy itself is unrolled
  for (uint32_t piece = begin + threadIdx.x / kWarpThreads; piece < end; piece += kWarps) {
    copy_piece<kShifts, kRows>(entries[(piece >> pieces_log2) - first], piece, pieces_log2, pool);
  }
}

/// Few blocks for a list of any length: every warp takes groups of consecutive pieces in turn and fetches the entries of its
/// next group before it copies the current one.
/// @param pieces_per_warp pieces of a group, 1 ... kMaxPiecesPerWarp
template <bool kShifts, uint32_t kRows, uint32_t kThreads>
__global__ void __launch_bounds__(kThreads, 1) unpack_stream(const KernelFragment* list, uint32_t count, uint32_t pieces_log2,
                                                             uint32_t pieces_per_warp, const std::byte* pool) {
  const uint32_t lane = threadIdx.x % kWarpThreads;
  const uint32_t warps = gridDim.x * (kThreads / kWarpThreads);
  const uint32_t pieces = count << pieces_log2;
  const auto fetch = [&](uint32_t group_begin) {
    uint4 entry = make_uint4(0, 0, 0, 0);
    const uint32_t piece = group_begin + lane;
    if (lane < pieces_per_warp && piece < pieces) entry = load_entry(list + (piece >> pieces_log2));
    return entry;
  };

  uint32_t begin = (blockIdx.x * (kThreads / kWarpThreads) + threadIdx.x / kWarpThreads) * pieces_per_warp;
  uint4 next = fetch(begin);
  for (; begin < pieces; begin += warps * pieces_per_warp) {
    const uint4 mine = next;
    next = fetch(begin + warps * pieces_per_warp);
    const uint32_t here = pieces - begin < pieces_per_warp ? pieces - begin : pieces_per_warp;
#pragma unroll 1
    for (uint32_t i = 0; i < here; ++i) {
      const uint4 entry = make_uint4(__shfl_sync(kWholeWarp, mine.x, i), __shfl_sync(kWholeWarp, mine.y, i),
                                     __shfl_sync(kWholeWarp, mine.z, i), __shfl_sync(kWholeWarp, mine.w, i));
      copy_piece<kShifts, kRows>(entry, begin + i, pieces_log2, pool);
    }
  }
}

}  // namespace tcpx
