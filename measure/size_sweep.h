// Sizes that are measured, and the number of transfers of each that go back to back. Arithmetic only.
#pragma once

#include <cstdint>
#include <vector>

namespace tcpx {

/// From `min_bytes` to `max_bytes`, each size `factor` times the one before.
struct SizeSweep {
  uint64_t min_bytes = 0;  ///< 1 ... max_bytes
  uint64_t max_bytes = 0;  ///< at most kMaxBytes
  uint32_t factor = 2;     ///< at least 2
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
};
std::vector<uint64_t> sizes_of(const SizeSweep& sweep);

/// Transfers of one round lie side by side, each in a slot of its own, and are filled and checked between rounds.
inline constexpr uint32_t kMaxSlots = 64;
/// From one slot to the next: `bytes` in whole pages.
uint64_t slot_stride(uint64_t bytes);
/// Number of slots of `bytes` bytes that fit into `room_bytes`: 1 ... kMaxSlots, one also when it does not fit.
uint32_t slots_in(uint64_t room_bytes, uint64_t bytes);

}  // namespace tcpx
