// The unpack kernel: warps take pieces of fragments, fragment_copy.h moves the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/fragment_copy.h"
#include "device/unpack_launch.h"

namespace tcpx {

/// Memory that the GPU addresses.
struct GlobalMemory {
  __device__ std::byte load_byte(const std::byte* address) const { return *address; }
  __device__ void store_byte(std::byte* address, std::byte value) const { *address = value; }
  __device__ CopyWord load_word(const std::byte* address) const {
    const uint4 word = *reinterpret_cast<const uint4*>(address);
    return CopyWord{{word.x, word.y, word.z, word.w}};
  }
  __device__ void store_word(std::byte* address, const CopyWord& word) const {
    *reinterpret_cast<uint4*>(address) = make_uint4(word.part[0], word.part[1], word.part[2], word.part[3]);
  }
};

/// Gathers `count` fragments, each cut into `pieces` pieces, one warp per piece at a time.
///
/// Each warp takes a contiguous stretch of the pieces. Its 32 threads fetch 32 descriptors at once, which come over the bus from
/// mapped host memory, and hand them round: one bus round trip per 32 pieces instead of one per piece.
/// Fragments and payload were written before the launch (by the host, or by the NIC as the plugin reported), and a launch orders
/// all such writes before the kernel: plain loads see them, no fence is needed.
template <bool kShifts>
__global__ void __launch_bounds__(kBlockThreads) unpack_kernel(const KernelFragment* fragments, uint32_t count, uint32_t pieces,
                                                               const std::byte* pool) {
  constexpr uint32_t kWholeWarp = 0xffffffffu;
  const uint32_t lane = threadIdx.x % kWarpThreads;
  const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpThreads;
  const Stretch own = stretch_of(count * pieces, warp, gridDim.x * blockDim.x / kWarpThreads);

  for (uint32_t first = 0; first < own.count; first += kWarpThreads) {
    CopyWord mine{};  // a KernelFragment in one load: src_off, len, low and high half of the destination
    if (first + lane < own.count) {
      mine = GlobalMemory{}.load_word(reinterpret_cast<const std::byte*>(fragments + (own.begin + first + lane) / pieces));
    }
    const uint32_t here = own.count - first < kWarpThreads ? own.count - first : kWarpThreads;
    for (uint32_t i = 0; i < here; ++i) {
      const uint32_t src_off = __shfl_sync(kWholeWarp, mine.part[0], i);
      const uint32_t len = __shfl_sync(kWholeWarp, mine.part[1], i);
      auto* const destination = reinterpret_cast<std::byte*>(__shfl_sync(kWholeWarp, mine.part[2], i) |
                                                             uint64_t{__shfl_sync(kWholeWarp, mine.part[3], i)} << 32);
      const Stretch piece = piece_of(len, (own.begin + first + i) % pieces, pieces);
      copy_fragment_share<kShifts>(GlobalMemory{}, destination + piece.begin, pool + src_off + piece.begin, piece.count,
                                   lane, kWarpThreads);
    }
  }
}

}  // namespace tcpx
