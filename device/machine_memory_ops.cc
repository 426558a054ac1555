#include "device/cuda_memory_ops.h"

namespace tcpx {

std::unique_ptr<MemoryOps> make_machine_memory_ops() {
  Result<std::unique_ptr<MemoryOps>> gpu = make_cuda_memory_ops();
  return gpu.is_ok() ? std::move(gpu).value() : make_host_memory_ops();
}

}  // namespace tcpx
