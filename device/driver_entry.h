// Functions of the CUDA driver, looked up at run time: nothing links to libcuda, which a machine without a driver does not have.
#pragma once

namespace tcpx {

/// @param symbol as in cuda.h, without version suffix. @param version the CUDA version that its type (cudaTypedefs.h) ends in.
/// @return nullptr when the driver lacks it; other errors of the look-up are logged.
void* find_driver_entry(const char* symbol, unsigned version);

template <class Function>
Function find_driver_function(const char* symbol, unsigned version) {
  return reinterpret_cast<Function>(find_driver_entry(symbol, version));
}

}  // namespace tcpx
