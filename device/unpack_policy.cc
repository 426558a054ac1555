#include "device/unpack_policy.h"

#include <algorithm>
#include <limits>

namespace tcpx {
namespace {

/// Fragments are not cut finer: 16384 pieces give every warp of a large GPU several.
constexpr uint32_t kMostPiecesLog2 = 14;

constexpr uint64_t divide_up(uint64_t value, uint64_t by) {
  return (value + by - 1) / by;
}

UnpackKernel kernel_for(const UnpackShape& shape) {
  if (shape.bytes / shape.fragment_count <= kSegmentBytes) return UnpackKernel::kSegments;
  return shape.alignment == AlignmentClass::kCongruent ? UnpackKernel::kPages : UnpackKernel::kShiftedPages;
}

/// Fine enough for the longest fragment, unless that would leave most pieces of the others empty.
uint32_t pieces_log2_for(const UnpackShape& shape, uint32_t piece_bytes) {
  const uint64_t most = 4 * (shape.bytes / piece_bytes + shape.fragment_count);
  uint32_t log2 = 0;
  while (log2 < kMostPiecesLog2 && (uint64_t{piece_bytes} << log2) < shape.longest_bytes &&
         (uint64_t{shape.fragment_count} << (log2 + 1)) <= most) {
    ++log2;
  }
  return log2;
}

LaunchPolicy tiles_policy(const UnpackShape& shape) {
  const UnpackKernel kernel = kernel_for(shape);
  LaunchPolicy policy{kernel, 0, threads_of(kernel), pieces_log2_for(shape, piece_bytes_of(kernel)), 1};
  if (kernel == UnpackKernel::kSegments) policy.pieces_per_warp = 2;
  const uint64_t tile = uint64_t{policy.threads / kWarpThreads} * policy.pieces_per_warp;
  policy.blocks = static_cast<uint32_t>(divide_up(uint64_t{shape.fragment_count} << policy.pieces_log2, tile));
  return policy;
}

LaunchPolicy few_blocks_policy(const UnpackShape& shape, uint32_t most_blocks) {
  const UnpackKernel kernel =
      shape.alignment == AlignmentClass::kCongruent ? UnpackKernel::kFewBlocks : UnpackKernel::kFewBlocksShifted;
  LaunchPolicy policy{kernel, 0, threads_of(kernel), pieces_log2_for(shape, piece_bytes_of(kernel)), 1};
  const uint64_t pieces = uint64_t{shape.fragment_count} << policy.pieces_log2;
  const uint64_t warps = policy.threads / kWarpThreads;
  policy.blocks = static_cast<uint32_t>(std::min<uint64_t>(divide_up(pieces, warps), most_blocks));
  // Groups once every warp has work.
  policy.pieces_per_warp = static_cast<uint32_t>(std::clamp<uint64_t>(pieces / (policy.blocks * warps), 1, kMaxPiecesPerWarp));
  return policy;
}

}  // namespace

LaunchPolicy choose_launch_policy(const UnpackShape& shape, uint32_t block_budget) {
  if (shape.fragment_count == 0 || shape.bytes == 0) return LaunchPolicy{UnpackKernel::kFewBlocks, 0, 0, 0, 0};
  const uint32_t budget = block_budget == 0 ? std::numeric_limits<uint32_t>::max() : block_budget;
  if (shape.pool == PoolMemory::kMappedHost) return few_blocks_policy(shape, std::min(budget, kMappedHostBlocks));
  const LaunchPolicy policy = tiles_policy(shape);
  return policy.blocks <= budget ? policy : few_blocks_policy(shape, budget);
}

}  // namespace tcpx
