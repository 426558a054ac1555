// Launches the kernels that fill and check test data. Seen by nvcc too, which compiles it as C++17.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/pattern_word.h"

namespace tcpx {

/// Starts filling `bytes` bytes at `data`, a device address of any alignment, with the stream of `seed` from `offset` on.
cudaError_t launch_pattern_fill(std::byte* data, size_t bytes, uint64_t seed, uint64_t offset, cudaStream_t stream);

/// Starts comparing. @param check of the device; the kernel adds to `wrong` and lowers `first_wrong`, which begin as 0 and the
/// highest number.
cudaError_t launch_pattern_check(const std::byte* data, size_t bytes, uint64_t seed, uint64_t offset, PatternCheck* check,
                                 cudaStream_t stream);

}  // namespace tcpx
