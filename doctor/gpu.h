// Group "gpu": the GPUs, their driver, and how near they are to the network.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "doctor/child_answer.h"
#include "doctor/finding.h"
#include "doctor/machine.h"

namespace tcpx::doctor {

struct CudaGpu {
  std::string pci_address;   ///< lower case, as in sysfs: "0000:04:00.0"
  int major = 0, minor = 0;  ///< compute capability
  bool dma_buf = false;      ///< its memory can be exported as a dma-buf
};

struct CudaAnswer : LibraryAnswer {
  int code = 0;     ///< CUresult of the call that failed; 0: none was made
  int version = 0;  ///< newest CUDA that the driver can run: 1000 x major + 10 x minor
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

/// All that this build can run on.
struct GpuBuild {
  std::string architectures;  ///< as CMAKE_CUDA_ARCHITECTURES, with commas: "75-real,80-real,90"; "" without CUDA
  int cuda_major = 0;         ///< of the CUDA runtime inside
};
/// True when kernels of these architectures run on a GPU of this compute capability: machine code runs on the same major version
/// with no smaller minor one, intermediate code on everything newer (NVIDIA: CUDA C++ Programming Guide, application
/// compatibility). nullopt for words such as "native".
std::optional<bool> runs_on(const std::string& architectures, int major, int minor);

/// An NVIDIA GPU on the PCI bus.
struct BusGpu {
  std::string address;
  std::optional<uint64_t> bar1_bytes;
  std::vector<std::pair<std::string, PciDistance>> nics;  ///< every network interface on the bus
};

struct GpuFacts {
  Expectation expected;
  std::vector<BusGpu> gpus;
  std::optional<std::string> module_version, proc_version;  ///< of the kernel module, by /sys and by /proc
  std::map<std::string, int> nodes;    ///< /dev/nvidia*, nvidiactl and nvidia-uvm; the errno of opening it, 0 when that works
  std::optional<std::string> visible;  ///< CUDA_VISIBLE_DEVICES; unlike other variables an empty one counts: it hides all GPUs
  bool internal_dma_buf = false;       ///< the plugin is told to export memory by itself, and there is what it does that by
  CudaAnswer cuda;
  GpuBuild build;
};
/// Without what only the driver tells, which the next two ask in child processes: a driver in trouble may hang or crash its
/// caller.
GpuFacts gpu_facts(const Machine& machine);
/// Opens each of `nodes` for reading and writing, and writes the errno there; ETIMEDOUT when that hangs.
void try_open(std::map<std::string, int>& nodes, Duration limit = std::chrono::seconds(10));
/// @param library of the CUDA driver
CudaAnswer ask_cuda(const std::string& library = "libcuda.so.1", Duration limit = std::chrono::seconds(10));

Findings check_gpu(const GpuFacts& facts);

}  // namespace tcpx::doctor
