// Launches the kernels that compute checksums, of memory as it is or of what they copy first. Seen by nvcc too, which compiles it as C++17.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/segment_launch.h"
#include "device/sum_piece.h"

namespace tcpx {

/// Factors that the kernel needs besides the pieces. They go along with the launch, so nothing outlives that.
struct SumFactors {
  uint64_t in_block[kSumThreads];  ///< ByteSumKey::power_in_block
  uint64_t squares[61];            ///< ByteSumKey::squares
  uint64_t words;                  ///< of the whole string
};

/// The total of a launch while its blocks add to it, in memory of the GPU: the halves of their sums, of which no 2^31 together are too much
/// for 64 bits. Zero before each launch; the last block leaves it so.
struct SumTotal {
  unsigned long long low, high;
  uint32_t blocks;
};

/// The part of a string that a launch sums: `count` pieces, from 1, addressed by the GPU until the kernel has finished.
struct SumList {
  const SumPiece* pieces;
  uint32_t count;
  uint32_t piece_bytes;  ///< not 0: there is no list: so many bytes each of one piece, `whole`
  SumPiece whole;
  const KernelSegment* segments;  ///< to be copied first, one for each piece, and summed where they end
  const std::byte* from;          ///< of `whole`, likewise
  SumTotal* total;                ///< of no other launch meanwhile
  uint64_t* sum;                  ///< becomes what the pieces add to the sum of the string; the host's
};

static_assert(sizeof(SumList) + sizeof(SumFactors) <= 4096, "most bytes of a kernel's parameters");

/// Starts the sums on `stream`, whose device is current. @param copies first copies what is then read again
cudaError_t launch_sum_pieces(const SumList& list, bool copies, const SumFactors& factors, cudaStream_t stream);

/// Loads the kernels' code onto the current device (see load_unpack_kernels).
cudaError_t load_sum_kernels();

}  // namespace tcpx
