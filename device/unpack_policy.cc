#include "device/unpack_policy.h"

#include <algorithm>

namespace tcpx {
namespace {

uint64_t divide_up(uint64_t value, uint64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

LaunchPolicy choose_launch_policy(const UnpackShape& shape, uint32_t block_budget) {
  LaunchPolicy policy{0, kBlockThreads, 1, shape.alignment};
  if (shape.fragment_count == 0 || shape.bytes == 0) return policy;

  const uint64_t finest = std::max<uint64_t>(1, kMaxPieces / shape.fragment_count);
  const uint64_t wanted = std::max<uint64_t>(1, divide_up(shape.longest_bytes, kPieceBytes));
  policy.pieces_per_fragment = static_cast<uint32_t>(std::min(wanted, finest));

  // One piece per warp while the budget lasts; beyond it warps take several in turn.
  const uint64_t warps = uint64_t{shape.fragment_count} * policy.pieces_per_fragment;
  uint64_t blocks = std::min<uint64_t>(divide_up(warps, kBlockWarps), std::max<uint32_t>(1, block_budget));
  if (shape.pool == PoolMemory::kMappedHost) blocks = std::min<uint64_t>(blocks, kMappedHostBlocks);
  policy.blocks = static_cast<uint32_t>(blocks);
  return policy;
}

}  // namespace tcpx
