// The launch policy of the unpack kernels: all choices of a launch, made on the host by a pure function. The launch obeys it
// and decides nothing. No CUDA here.
#pragma once

#include <cstdint>

#include "device/fragment_copy.h"

namespace tcpx {

/// Relative alignment of source and destination addresses of a launch's fragments, modulo 16.
enum class AlignmentClass : uint8_t {
  kCongruent,  ///< source and destination of every fragment are equal modulo 16: a word is one load and one store
  kMixed,      ///< some differ: words are cut out of two
};

/// Location of the bounce pool as seen from the GPU.
enum class PoolMemory : uint8_t {
  kDevice,
  kMappedHost,  ///< pinned host memory, read over the bus
};

/// Facts about one launch.
struct UnpackShape {
  uint32_t fragment_count;
  uint64_t bytes;          ///< of all fragments
  uint32_t longest_bytes;  ///< of the longest fragment
  AlignmentClass alignment;
  PoolMemory pool;
};

/// A kernel (unpack_kernels.cuh) with its constants (unpack_launch.cu).
enum class UnpackKernel : uint8_t {
  kPages,             ///< congruent pages: four warps share a page, since many small steps in order suit DRAM best
  kShiftedPages,      ///< pages of any alignment: a warp takes a whole one, which avoids the seams
  kSegments,          ///< fragments that one round of loads covers, such as TCP segments: more warps at a time, two each
  kFewBlocks,         ///< a congruent list of any length with few, large blocks: as many loads in flight as registers hold
  kFewBlocksShifted,  ///< the same for any alignment
};
inline constexpr UnpackKernel kUnpackKernels[] = {UnpackKernel::kPages, UnpackKernel::kShiftedPages, UnpackKernel::kSegments,
                                                  UnpackKernel::kFewBlocks, UnpackKernel::kFewBlocksShifted};

/// Threads per block.
constexpr uint32_t threads_of(UnpackKernel kernel) {
  switch (kernel) {
    case UnpackKernel::kPages:
      return 512;
    case UnpackKernel::kShiftedPages:
      return 256;
    case UnpackKernel::kSegments:
      return 128;
    case UnpackKernel::kFewBlocks:
    case UnpackKernel::kFewBlocksShifted:
      return 1024;
  }
  return 0;
}

/// Fragments are cut into pieces of at most this; one warp copies a piece.
constexpr uint32_t piece_bytes_of(UnpackKernel kernel) {
  return kernel == UnpackKernel::kPages ? 1024 : 4096;
}

/// Mean length up to which fragments count as segments: three rows of a warp, 1448 bytes being the usual segment.
inline constexpr uint32_t kSegmentBytes = 3 * kRowBytes;
/// Most consecutive pieces that a warp takes at a time.
inline constexpr uint32_t kMaxPiecesPerWarp = 4;
/// Blocks that read mapped host memory: on an H200 (PCIe gen 5) four large blocks reach the bus bandwidth of kernels, eight do
/// so for segments too, and the rest of the GPU stays free.
inline constexpr uint32_t kMappedHostBlocks = 8;

struct LaunchPolicy {
  UnpackKernel kernel;
  uint32_t blocks;           ///< 0: nothing to launch
  uint32_t threads;          ///< per block: threads_of(kernel)
  uint32_t pieces_log2;      ///< each fragment is cut into 2^pieces_log2 pieces
  uint32_t pieces_per_warp;  ///< 1 ... kMaxPiecesPerWarp
  friend bool operator==(const LaunchPolicy& a, const LaunchPolicy& b) {
    return a.kernel == b.kernel && a.blocks == b.blocks && a.threads == b.threads && a.pieces_log2 == b.pieces_log2 &&
           a.pieces_per_warp == b.pieces_per_warp;
  }
};

/// @param block_budget most blocks this launch may use, to leave room for compute; 0: as many as help.
LaunchPolicy choose_launch_policy(const UnpackShape& shape, uint32_t block_budget);

}  // namespace tcpx
