// The launch policy of the unpack kernel: everything about a launch that is a choice, made on the host by a pure function. The
// launch obeys it and decides nothing. No CUDA here.
#pragma once

#include <cstdint>

namespace tcpx {

/// How the addresses of a block's fragments lie to each other modulo 16.
enum class AlignmentClass : uint8_t {
  kCongruent,  ///< source and destination of every fragment are equal modulo 16: a word is one load and one store
  kMixed,      ///< some differ: words are cut out of two loads
};

/// Where the bounce pool lies, seen from the GPU.
enum class PoolMemory : uint8_t {
  kDevice,
  kMappedHost,  ///< pinned host memory, read over the bus
};

/// What is known about one launch.
struct UnpackShape {
  uint32_t fragment_count;
  uint64_t bytes;          ///< of all fragments
  uint32_t longest_bytes;  ///< of the longest fragment
  AlignmentClass alignment;
  PoolMemory pool;
};

/// Threads of a warp, which copy one piece of a fragment together.
inline constexpr uint32_t kWarpThreads = 32;
inline constexpr uint32_t kBlockThreads = 512;
inline constexpr uint32_t kBlockWarps = kBlockThreads / kWarpThreads;
/// A fragment longer than this is shared by several warps. One page, so that usual fragments stay whole.
inline constexpr uint32_t kPieceBytes = 4096;
/// Enough pieces for every warp of a large GPU to have two; a fragment is not cut finer than that.
inline constexpr uint32_t kMaxPieces = 16384;
/// Blocks that read mapped host memory: eight saturate the bus (measured on an H200, PCIe gen 5: four reach 50.8 of 51 GB/s), and
/// the rest of the GPU stays free.
inline constexpr uint32_t kMappedHostBlocks = 8;

struct LaunchPolicy {
  uint32_t blocks;               ///< 0: nothing to launch
  uint32_t threads;              ///< per block
  uint32_t pieces_per_fragment;  ///< 1 ... ; each fragment is cut into this many pieces, one warp copies one piece
  AlignmentClass alignment;      ///< which kernel
  friend bool operator==(const LaunchPolicy& a, const LaunchPolicy& b) {
    return a.blocks == b.blocks && a.threads == b.threads && a.pieces_per_fragment == b.pieces_per_fragment &&
           a.alignment == b.alignment;
  }
};

/// @param block_budget most blocks this launch may use, from 1: the GPU's multiprocessors, or fewer to leave room for compute.
LaunchPolicy choose_launch_policy(const UnpackShape& shape, uint32_t block_budget);

}  // namespace tcpx
