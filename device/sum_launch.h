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
static_assert(sizeof(SumFactors) + 16 <= 4096, "most bytes of a kernel's parameters");

/// Starts the sums on `stream`, whose device is current. Each `position` becomes what the piece adds to the sum of the string.
/// @param pieces addressed by the GPU; must stay valid until the kernel has finished. @param count from 1.
cudaError_t launch_sum_pieces(SumPiece* pieces, uint32_t count, const SumFactors& factors, cudaStream_t stream);
/// The same, after each block has copied the segment that ends in its piece, and reads again what it has written.
/// @param segments as many as pieces, likewise
cudaError_t launch_copy_and_sum(const KernelSegment* segments, SumPiece* pieces, uint32_t count, const SumFactors& factors,
                                cudaStream_t stream);

/// Loads the kernels' code onto the current device (see load_unpack_kernels).
cudaError_t load_sum_kernels();

}  // namespace tcpx
