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
  uint64_t joined_distance = 0;
  for (const DescriptorBlock& block : run.blocks) {
    std::byte* const destination = block.target().destination;
    KernelFragment* const to = list + count;
    const std::span<const Fragment> fragments = block.fragments();
    for (size_t i = 0; i < fragments.size(); ++i) {
      to[i] = KernelFragment{fragments[i].src_off, fragments[i].len, destination + fragments[i].dst_off};
    }
    count += fragments.size();
    bytes += block.message_bytes();
    longest = std::max(longest, block.longest_bytes());
    joined_distance |= block.joined_distance();
  }
  return UnpackShape{static_cast<uint32_t>(count), bytes, longest,
                     joined_distance % kCopyWordBytes == 0 ? AlignmentClass::kCongruent : AlignmentClass::kMixed, memory};
}

}  // namespace tcpx
