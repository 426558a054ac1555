// Which GPUs the kernels of a build run on.
#pragma once

#include <optional>
#include <string>

namespace tcpx::doctor {

/// What this build can run on.
struct GpuBuild {
  std::string architectures;  ///< as CMAKE_CUDA_ARCHITECTURES, with commas: "75-real,80-real,90"; "" without CUDA
  int cuda_major = 0;         ///< of the CUDA runtime inside
};
GpuBuild this_build();

/// Whether kernels of these architectures run on a GPU of this compute capability: machine code runs on the same major version
/// with no smaller minor one, intermediate code on everything newer (NVIDIA: CUDA C++ Programming Guide, application
/// compatibility). nullopt for words such as "native".
std::optional<bool> runs_on(const std::string& architectures, int major, int minor);

}  // namespace tcpx::doctor
