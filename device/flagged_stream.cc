#include "device/flagged_stream.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <atomic>
#include <type_traits>
#include <utility>

#include "device/driver_entry.h"

namespace tcpx {
namespace {

PFN_cuStreamWriteValue32_v11070 as_driver_function(void* function) {
  return reinterpret_cast<PFN_cuStreamWriteValue32_v11070>(function);
}

}  // namespace

Result<FlaggedStream> FlaggedStream::create(int device, MemoryOps& memory) {
  void* const write = find_driver_entry("cuStreamWriteValue32", 11070);
  if (write == nullptr) return Status(Code::kUnsupported, "make flagged stream", "the driver lacks stream memory operations");
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer flag, memory.allocate_mapped(device, sizeof(uint32_t)));
  TCPX_ASSIGN_OR_RETURN(Stream stream, Stream::create());
  return FlaggedStream(std::move(stream), std::move(flag), write);
}

Result<uint32_t> FlaggedStream::mark() {
  // By default the write waits until all work before it is visible system-wide.
  const CUresult written = as_driver_function(write_)(stream_.view().get(), reinterpret_cast<CUdeviceptr>(flag_.device()),
                                                      newest_ + 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (written != CUDA_SUCCESS) {
    return Status(Code::kCuda, "write stream flag", "the driver refused it", Domain::kCuda, static_cast<int32_t>(written));
  }
  return ++newest_;
}

Result<bool> FlaggedStream::has_reached(uint32_t mark) {
  const uint32_t reached = std::atomic_ref(*reinterpret_cast<uint32_t*>(flag_.host())).load(std::memory_order_acquire);
  if (static_cast<int32_t>(reached - mark) >= 0) return true;
  if ((asked_->fetch_add(1, std::memory_order_relaxed) + 1) % kAskEvery != 0) return false;
  TCPX_RETURN_IF_ERROR(stream_.view().health());
  return false;
}

void FlaggedStream::drain() const {
  const CaptureGuard captures;
  [[maybe_unused]] const cudaError_t drained = cudaStreamSynchronize(stream_.view().get());
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
}

}  // namespace tcpx
