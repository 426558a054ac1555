#include "device/gpu_presence.h"

#include <cuda_runtime_api.h>

#include <string>

#include "base/log.h"
#include "base/text.h"

namespace tcpx {
namespace {

/// CUDA's answer both for no driver at all and for one too old for this runtime; only the former has version 0.
bool no_driver(cudaError_t error) {
  int version = 0;
  return error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&version) == cudaSuccess && version == 0;
}

Result<int> probe() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  const std::string why = no_driver(error)       ? "no NVIDIA driver"
                          : error == cudaSuccess ? "none visible"
                                                 : cudaGetErrorString(error);
  // Any other error is a GPU or a driver that does not work.
  const bool ordinary = error == cudaSuccess || error == cudaErrorNoDevice || no_driver(error);
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
  Status status(Code::kUnsupported, "look for a GPU", concat("no GPU found: ", why, " (", cudaGetErrorName(error), ")"),
                Domain::kCuda, static_cast<int32_t>(error));
  if (!ordinary) log(LogLevel::kWarning, status.to_string(), "; host memory stands in for device memory");
  return status;
}

}  // namespace

const Result<int>& gpu_count() {
  static const Result<int> count = probe();
  return count;
}

}  // namespace tcpx
