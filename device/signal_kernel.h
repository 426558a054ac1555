// The kernel that waits for the host. Seen by nvcc too, which compiles it as C++17.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tcpx {

/// Starts one thread on `stream` that ends when `*flag`, mapped host memory, has reached `value` (modulo 2^32).
cudaError_t launch_await_flag(const uint32_t* flag, uint32_t value, cudaStream_t stream);

/// See load_unpack_kernels.
cudaError_t load_signal_kernel();

}  // namespace tcpx
