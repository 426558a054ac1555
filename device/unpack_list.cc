#include "device/unpack_list.h"

#include <algorithm>
#include <cstdint>

namespace tcpx {

PoolRun leading_run(std::span<const DescriptorBlock> blocks) {
  const std::byte* pool = nullptr;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].fragments().empty()) continue;
    if (pool != nullptr && pool != blocks[i].target().pool) return PoolRun{blocks.first(i), pool};
    pool = blocks[i].target().pool;
  }
  return PoolRun{blocks, pool};
}

UnpackShape write_list(const PoolRun& run, KernelFragment* list, PoolMemory memory) {
  size_t count = 0;
  uint64_t bytes = 0;
  uint32_t longest = 0;
  uint32_t differing = 0;
  for (const DescriptorBlock& block : run.blocks) {
    std::byte* const destination = block.target().destination;
    // Only the lowest bits are looked at, so 32 are enough; no branch, because the host pays this per fragment.
    const auto between_bases =
        static_cast<uint32_t>(reinterpret_cast<uintptr_t>(run.pool) - reinterpret_cast<uintptr_t>(destination));
    KernelFragment* const to = list + count;
    const std::span<const Fragment> fragments = block.fragments();
    for (size_t i = 0; i < fragments.size(); ++i) {
      const Fragment fragment = fragments[i];
      to[i] = KernelFragment{fragment.src_off, fragment.len, destination + fragment.dst_off};
      differing |= between_bases + fragment.src_off - static_cast<uint32_t>(fragment.dst_off);
      longest = std::max(longest, fragment.len);
    }
    count += fragments.size();
    bytes += block.message_bytes();
  }
  return UnpackShape{static_cast<uint32_t>(count), bytes, longest,
                     differing % 16 == 0 ? AlignmentClass::kCongruent : AlignmentClass::kMixed, memory};
}

}  // namespace tcpx
