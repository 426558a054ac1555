#include "programs/unpack/gpu_description.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/text.h"
#include "device/cuda_handles.h"
#include "measure/result_file.h"

namespace tcpx {
namespace {

/// The kernel module says it; the CUDA runtime only knows the CUDA version that the driver offers.
std::string driver_version() {
  constexpr size_t kLongest = 64;
  const Result<std::string> text = read_file("/sys/module/nvidia/version", kLongest * kLongest);
  if (!text.is_ok()) return "of unknown version";
  return text->substr(0, std::min(text->find_first_of(" \n"), kLongest));
}

}  // namespace

Result<std::string> gpu_description(int gpu) {
  cudaDeviceProp properties{};
  TCPX_RETURN_IF_ERROR(cuda_status(cudaGetDeviceProperties(&properties, gpu), "describe GPU"));
  int runtime = 0;
  TCPX_RETURN_IF_ERROR(cuda_status(cudaRuntimeGetVersion(&runtime), "ask for the version of CUDA"));
  return concat(properties.name, ", driver ", driver_version(), ", CUDA ", runtime / 1000, ".", runtime % 1000 / 10);
}

Result<uint64_t> gpu_memory_bytes(int gpu) {
  cudaDeviceProp properties{};
  TCPX_RETURN_IF_ERROR(cuda_status(cudaGetDeviceProperties(&properties, gpu), "describe GPU"));
  return uint64_t{properties.totalGlobalMem};
}

}  // namespace tcpx
