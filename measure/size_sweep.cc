#include "measure/size_sweep.h"

#include <algorithm>

#include "tcpx/types.h"

namespace tcpx {

std::vector<uint64_t> sizes_of(const SizeSweep& sweep) {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = sweep.min_bytes; bytes <= sweep.max_bytes; bytes *= sweep.factor) {
    sizes.push_back(bytes);
    if (bytes > sweep.max_bytes / sweep.factor) break;
  }
  return sizes;
}

uint64_t slot_stride(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

uint32_t slots_in(uint64_t room_bytes, uint64_t bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(room_bytes / slot_stride(bytes), 1, kMaxSlots));
}

}  // namespace tcpx
