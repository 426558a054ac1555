// GpuLinks: by what two GPUs of this host reach each other, as the driver's management library (NVML) says. Unlike CUDA it knows
// GPUs that this process does not see, and a peer's is often one of those.
#pragma once

#include <memory>
#include <string>

#include "base/memory_ops.h"
#include "base/mutex.h"

namespace tcpx {

/// Any thread. NVML is opened when it is first needed, which takes some milliseconds, and closed at the end.
class GpuLinks {
 public:
  /// @param library NVML's, by name or path
  explicit GpuLinks(std::string library = "libnvidia-ml.so.1");
  ~GpuLinks();

  /// @param here, there bus ids, as in "0000:3b:00.0"; of `there` nothing is believed @return kUnknown: NVML is missing, refuses, or
  /// knows one of them not
  GpuLink between(const std::string& here, const std::string& there);

 private:
  struct Nvml;
  const std::string library_;
  Mutex mutex_;
  bool asked_ TCPX_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Nvml> nvml_ TCPX_GUARDED_BY(mutex_);  // null: not to be had
};

}  // namespace tcpx
