// GpuReach: decides how an endpoint copies the memory of any GPU of its host. The endpoint's own GPU does all the work if it reaches
// the memory. Otherwise a copier of the GPU that owns the memory copies it to mapped host memory, which every GPU reaches, and back.
#pragma once

#include <map>
#include <memory>

#include "base/memory_ops.h"
#include "base/memory_registry.h"
#include "base/mutex.h"

namespace tcpx {

class GpuReach {
 public:
  /// @param memory must outlive this. @param gpu the endpoint's. @param steered NetPlugin::steers_flows
  GpuReach(MemoryOps& memory, int gpu, bool steered) : memory_(memory), gpu_(gpu), steered_(steered) {}

  /// @param data GPU memory, or host memory standing in for it. Any thread. A returned copier lives as long as this, and makes its own
  /// GPU current.
  /// @return kUnsupported: the endpoint's GPU does not reach the memory, and its owner has no copier
  Result<GpuAccess> access_to(const void* data, size_t bytes);

 private:
  Result<SegmentCopier*> copier_of(int gpu);

  MemoryOps& memory_;
  const int gpu_;
  const bool steered_;
  Mutex mutex_;
  std::map<int, std::unique_ptr<SegmentCopier>> copiers_ TCPX_GUARDED_BY(mutex_);  // by GPU, made when first needed
};

}  // namespace tcpx
