// In a build without CUDA.
#include "programs/unpack/gpu_description.h"

namespace tcpx {

Result<std::string> gpu_description(int) {
  return Status(Code::kUnsupported, "describe GPU", "this build has no CUDA");
}

Result<uint64_t> gpu_memory_bytes(int) {
  return Status(Code::kUnsupported, "describe GPU", "this build has no CUDA");
}

}  // namespace tcpx
