#include "endpoint/gpu_reach.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "endpoint/current_gpu.h"

namespace tcpx {
namespace {

/// Copier of a GPU that is not current on the progress thread.
class CopierElsewhere final : public SegmentCopier {
 public:
  CopierElsewhere(MemoryOps& memory, int gpu, std::unique_ptr<SegmentCopier> copier)
      : memory_(memory), gpu_(gpu), copier_(std::move(copier)) {}
  ~CopierElsewhere() override {
    const CurrentGpu current(memory_, gpu_);
    copier_.reset();
  }

  Result<CopyTicket> submit(std::span<const CopySegment> segments) override {
    const CurrentGpu current(memory_, gpu_);
    return copier_->submit(segments);
  }
  Result<CopyTicket> submit_sum(const ByteSumKey& key, std::span<const CopySegment> segments, uint64_t& sum) override {
    const CurrentGpu current(memory_, gpu_);
    return copier_->submit_sum(key, segments, sum);
  }
  Result<CopyTicket> submit_summed(std::span<const CopySegment> segments, const SumPlace& place, uint64_t& part) override {
    const CurrentGpu current(memory_, gpu_);
    return copier_->submit_summed(segments, place, part);
  }
  Result<bool> query(CopyTicket ticket) override {
    const CurrentGpu current(memory_, gpu_);
    return copier_->query(ticket);
  }

 private:
  MemoryOps& memory_;
  const int gpu_;
  std::unique_ptr<SegmentCopier> copier_;
};

}  // namespace

Result<GpuAccess> GpuReach::access_to(const void* data, size_t bytes) {
  const int owner = memory_.gpu_of(data).value_or(gpu_);
  if (owner == gpu_) {
    // A plugin that hands GPU memory to a NIC does not notice if the driver refuses to export it. Such memory is staged.
    const bool staged = steered_ && !memory_.check_export(gpu_, whole_pages(const_cast<void*>(data), bytes)).is_ok();
    return GpuAccess{.gpu = owner, .staged = staged};
  }
  // The comms of a plugin that steers flows work for the memory of one GPU only (trap 27).
  if (memory_.reaches(gpu_, data)) return GpuAccess{.gpu = owner, .staged = steered_};
  const auto copier = copier_of(owner);
  if (copier.is_ok()) return GpuAccess{.gpu = owner, .staged = true, .copier = *copier};
  return Status(Code::kUnsupported, "register memory",
                concat("the endpoint's GPU ", gpu_, " does not reach this memory of GPU ", owner,
                       ", which has no copier either: ", copier.status().to_string()));
}

Result<SegmentCopier*> GpuReach::copier_of(int gpu) {
  const MutexLock lock(mutex_);
  if (const auto known = copiers_.find(gpu); known != copiers_.end()) return known->second.get();
  const CurrentGpu current(memory_, gpu);
  TCPX_ASSIGN_OR_RETURN(auto copier, memory_.make_segment_copier(gpu));
  log(LogLevel::kInfo, "memory of GPU ", gpu, " that GPU ", gpu_, " does not reach is copied through host memory");
  return copiers_.emplace(gpu, std::make_unique<CopierElsewhere>(memory_, gpu, std::move(copier))).first->second.get();
}

}  // namespace tcpx
