// What only the GPU driver can tell.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tcpx::doctor {

struct CudaGpu {
  std::string pci_address;   ///< lower case, as in sysfs: "0000:04:00.0"
  int major = 0, minor = 0;  ///< compute capability
  bool dma_buf = false;      ///< its memory can be exported as a dma-buf
};

struct CudaAnswer {
  enum class End : uint8_t {
    kAnswered,
    kNoLibrary,  ///< libcuda.so.1 cannot be opened, or lacks a function
    kRefused,    ///< a call failed: `code`
    kDied,       ///< the process that asked ended
    kHung,
  };
  End end = End::kNoLibrary;
  int code = 0;        ///< CUresult
  std::string detail;  ///< of all but kAnswered
  int version = 0;     ///< newest CUDA that the driver can run: 1000 x major + 10 x minor
  std::vector<CudaGpu> gpus;
};

/// CUresults that have a cure of their own. Mirrored from NVIDIA's cuda.h, CUDA 12: enum cudaError_enum.
enum CudaResult : int {
  kCudaStubLibrary = 34,
  kCudaNoDevice = 100,
  kCudaSystemNotReady = 802,
  kCudaDriverMismatch = 803,
  kCudaUnknown = 999,
};

class GpuSource {
 public:
  virtual ~GpuSource() = default;
  /// For each path the errno of opening it for reading and writing; 0 when that works, ETIMEDOUT when it hangs.
  virtual std::vector<int> open_errors(const std::vector<std::string>& paths) = 0;
  virtual CudaAnswer ask_cuda() = 0;
};

/// Asks in child processes: a driver in trouble may hang or crash whoever calls it.
/// @param library of the CUDA driver
/// @param limit for each of the two questions
std::unique_ptr<GpuSource> make_gpu_source(std::string library = "libcuda.so.1", Duration limit = std::chrono::seconds(10));

}  // namespace tcpx::doctor
