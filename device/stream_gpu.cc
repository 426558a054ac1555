#include "device/stream_gpu.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include "device/driver_entry.h"

namespace tcpx {

// Asks the context and not cudaStreamGetDevice, which CUDA has since 12.8 only.
Result<int> gpu_of_stream(StreamView stream) {
  static const auto context_of = find_driver_function<PFN_cuStreamGetCtx_v9020>("cuStreamGetCtx", 9020);
  static const auto push = find_driver_function<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent", 4000);
  static const auto pop = find_driver_function<PFN_cuCtxPopCurrent_v4000>("cuCtxPopCurrent", 4000);
  static const auto current = find_driver_function<PFN_cuCtxGetDevice_v2000>("cuCtxGetDevice", 2000);
  constexpr const char* kOperation = "ask stream for its GPU";
  if (context_of == nullptr || push == nullptr || pop == nullptr || current == nullptr)
    return Status(Code::kUnsupported, kOperation, "the driver lacks a function that this takes");
  CUcontext context = nullptr;
  CUdevice device = 0;
  CUresult result = context_of(stream.get(), &context);
  if (result == CUDA_SUCCESS) result = push(context);
  if (result == CUDA_SUCCESS) {
    result = current(&device);
    [[maybe_unused]] const CUresult popped = pop(&context);
  }
  if (result == CUDA_SUCCESS) return device;
  return Status(Code::kCuda, kOperation, "the driver does not know the stream", Domain::kCuda, static_cast<int32_t>(result));
}

}  // namespace tcpx
