#include "device/driver_entry.h"

#include <cuda_runtime_api.h>

#include "base/text.h"
#include "device/cuda_handles.h"

namespace tcpx {

void* find_driver_entry(const char* symbol, [[maybe_unused]] unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(symbol, &function, version, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(symbol, &function, cudaEnableDefault, &found);
#endif
  if (!cuda_status(error, concat("look up ", symbol)).is_ok() || found != cudaDriverEntryPointSuccess) return nullptr;
  return function;
}

}  // namespace tcpx
