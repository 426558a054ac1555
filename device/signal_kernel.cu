#include "device/signal_kernel.h"

namespace tcpx {
inline namespace signal_kernel {  // named, see cmake/compiler.cmake

constexpr unsigned kPauseNs = 500;

__global__ void await_flag(const uint32_t* flag, uint32_t value) {
  for (;;) {
    uint32_t now;
    // Pairs with the host's release in GpuSignal::fire.
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(now) : "l"(flag) : "memory");
    if (static_cast<int32_t>(now - value) >= 0) return;
    __nanosleep(kPauseNs);
  }
}

}  // namespace signal_kernel

cudaError_t launch_await_flag(const uint32_t* flag, uint32_t value, cudaStream_t stream) {
  await_flag<<<1, 1, 0, stream>>>(flag, value);
  return cudaGetLastError();
}

cudaError_t load_signal_kernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, await_flag);
}

}  // namespace tcpx
