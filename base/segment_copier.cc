#include "base/segment_copier.h"

#include "base/byte_sum.h"
#include "base/gpu_order.h"
#include "base/guarded_copy.h"
#include "base/memory_ops.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

// Copies within `submit`; for memory that the host can address.
class HostSegmentCopier final : public SegmentCopier {
 public:
  Result<CopyTicket> submit(std::span<const CopySegment> segments) override {
    TCPX_RETURN_IF_ERROR(check(segments));
    if (const int error = guarded_copy(segments); error != 0) return system_error("copy segments", error);
    return CopyTicket{next_++};
  }
  Result<CopyTicket> submit_sum(const ByteSumKey& key, std::span<const CopySegment> segments, uint64_t& sum) override {
    TCPX_RETURN_IF_ERROR(check(segments));
    uint64_t total = 0;
    for (const CopySegment& segment : segments) total += segment.bytes;
    TCPX_ASSIGN_OR_RETURN(sum, sum_of(segments, &CopySegment::from, {key, 0, total}));
    return CopyTicket{next_++};
  }
  Result<CopyTicket> submit_summed(std::span<const CopySegment> segments, const SumPlace& place, uint64_t& part) override {
    TCPX_ASSIGN_OR_RETURN(const CopyTicket ticket, submit(segments));
    TCPX_ASSIGN_OR_RETURN(part, sum_of(segments, &CopySegment::to, place));
    return ticket;
  }
  Result<bool> query(CopyTicket ticket) override {
    if (static_cast<uint64_t>(ticket) < next_) return true;
    return Status(Code::kInvalidArgument, "query copies", concat("no ticket ", static_cast<uint64_t>(ticket)));
  }

 private:
  static Result<uint64_t> sum_of(std::span<const CopySegment> segments, auto CopySegment::*data, const SumPlace& place) {
    const auto add = [](void* part, std::span<const std::byte> bytes) { static_cast<ByteSumPart*>(part)->add(bytes); };
    ByteSumPart part(place.key, place.begin);
    for (const CopySegment& segment : segments) {
      if (const int error = guarded_read({segment.*data, segment.bytes}, add, &part); error != 0)
        return system_error("sum segments", error);
    }
    return part.value(place.total);
  }
  static Status check(std::span<const CopySegment> segments) {
    if (segments.size() <= kMaxCopySegments) return Status::ok();
    return Status(Code::kInvalidArgument, "copy segments", concat(segments.size(), ", at most ", kMaxCopySegments));
  }

  uint64_t next_ = 0;
};

class NoGpuOrder final : public GpuOrder {
 public:
  Result<std::unique_ptr<GpuMark>> mark_stream(void*, int) override { return refused("wait for a CUDA stream"); }
  Result<std::unique_ptr<GpuMark>> mark_event(void*) override { return refused("wait for a CUDA event"); }
  Result<std::unique_ptr<GpuSignal>> make_signal() override { return refused("make a CUDA event"); }

 private:
  static Status refused(const char* operation) {
    return Status(Code::kUnsupported, operation, "no GPU here: host memory stands in for it");
  }
};

}  // namespace

Result<std::unique_ptr<SegmentCopier>> MemoryOps::make_segment_copier(int) {
  return std::unique_ptr<SegmentCopier>(std::make_unique<HostSegmentCopier>());
}

std::unique_ptr<GpuOrder> MemoryOps::make_gpu_order(int) {
  return std::make_unique<NoGpuOrder>();
}

}  // namespace tcpx
