#include "lanes/summing.h"

#include <optional>
#include <utility>
#include <vector>

namespace tcpx {
namespace {

class HostSumming final : public Summing {
 public:
  HostSumming(std::shared_ptr<const ByteSumKey> key, std::span<const CopySegment> segments, HostCopier& copier)
      : copier_(copier), copy_(copier.start_sum(std::move(key), segments)) {}

  Result<bool> is_done() override {
    if (!copy_->done()) copier_.relieve();
    if (stopped_ && copy_->hangs()) copy_->abandon();
    if (!copy_->done()) return false;
    TCPX_RETURN_IF_ERROR(copy_->status());
    return true;
  }
  uint64_t sum() const override { return copy_->sum(); }
  void stop() override {
    copy_->stop();
    stopped_ = true;
  }
  void abandon() override { copy_->abandon(); }

 private:
  HostCopier& copier_;
  const std::shared_ptr<HostCopy> copy_;
  bool stopped_ = false;
};

// A sum that a GPU has begun ends: its memory always answers.
class GpuSumming final : public Summing {
 public:
  GpuSumming(std::shared_ptr<const ByteSumKey> key, std::vector<CopySegment> segments, SegmentCopier& copier)
      : key_(std::move(key)), segments_(std::move(segments)), copier_(copier) {}

  Result<bool> is_done() override {
    if (ticket_) return copier_.query(*ticket_);
    if (stopped_) return true;
    const auto ticket = copier_.submit_sum(*key_, segments_, sum_);
    if (ticket.is_ok()) {
      ticket_ = *ticket;
    } else if (ticket.status().code() != Code::kExhausted) {
      return ticket.status();
    }
    return false;
  }
  uint64_t sum() const override { return sum_; }
  void stop() override { stopped_ = true; }
  void abandon() override { stop(); }

 private:
  const std::shared_ptr<const ByteSumKey> key_;
  const std::vector<CopySegment> segments_;
  SegmentCopier& copier_;
  std::optional<CopyTicket> ticket_;  // nullopt: the copier has had no room for it yet
  uint64_t sum_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<Summing> Summing::begin(std::shared_ptr<const ByteSumKey> key, std::span<const HeldRange> ranges,
                                        const PullParts& parts) {
  std::vector<CopySegment> segments;
  segments.reserve(ranges.size());
  for (const HeldRange& range : ranges) segments.push_back({nullptr, range.data, range.bytes});
  if (ranges.empty() || is_of_host(ranges.front().region(), parts.memory))
    return std::make_unique<HostSumming>(std::move(key), segments, parts.host_copier);
  SegmentCopier* const own = ranges.front().region().access.copier;
  auto summing = std::make_unique<GpuSumming>(std::move(key), std::move(segments), own != nullptr ? *own : parts.gpu_copier);
  (void)summing->is_done();  // submits it; what keeps it from that shows again
  return summing;
}

}  // namespace tcpx
