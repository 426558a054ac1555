// GpuReach: how an endpoint gets at memory of this or that GPU. Its own GPU does all the work where it reaches the memory. Else a
// copier of the GPU that the memory belongs to brings it to mapped host memory, which every GPU reaches, and back.
#pragma once

#include <map>
#include <memory>

#include "base/memory_ops.h"
#include "base/mutex.h"
#include "base/memory_registry.h"

namespace tcpx {

class GpuReach {
 public:
  /// @param memory must outlive it. @param gpu the endpoint's. @param steered NetPlugin::steers_flows
  GpuReach(MemoryOps& memory, int gpu, bool steered) : memory_(memory), gpu_(gpu), steered_(steered) {}

  /// For memory of a GPU, or what stands in for it. Any thread. The copier it may name lives as long as this; it makes its GPU
  /// current for itself.
  /// @return kUnsupported: of a GPU that is not reached and has no copier
  Result<GpuAccess> access_to(const void* data, size_t bytes);

 private:
  Result<SegmentCopier*> copier_of(int gpu);

  MemoryOps& memory_;
  const int gpu_;
  const bool steered_;
  Mutex mutex_;
  std::map<int, std::unique_ptr<SegmentCopier>> copiers_ TCPX_GUARDED_BY(mutex_);  // by GPU, made at the first need
};

}  // namespace tcpx
