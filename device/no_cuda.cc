// The layer's answers in a build without CUDA, in place of the files that use it.
#include "device/cuda_memory_ops.h"
#include "device/gpu_pattern.h"
#include "device/gpu_presence.h"
#include "device/unpacker_factory.h"

namespace tcpx {

const Result<int>& gpu_count() {
  static const Result<int> none = Status(Code::kUnsupported, "look for a GPU", "no CUDA in this build");
  return none;
}

Result<std::unique_ptr<MemoryOps>> make_cuda_memory_ops() {
  return gpu_count().status();
}

Result<std::unique_ptr<Unpacker>> make_d2d_unpacker(int) {
  return gpu_count().status();
}

Result<std::unique_ptr<Unpacker>> make_kernel_unpacker(int, MemoryOps&) {
  return gpu_count().status();
}

Result<std::unique_ptr<GpuPattern>> GpuPattern::create(int, MemoryOps&) {
  return gpu_count().status();
}

Result<uint64_t> free_gpu_bytes(int) {
  return gpu_count().status();
}

}  // namespace tcpx
