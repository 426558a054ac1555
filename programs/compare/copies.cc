#include "programs/compare/copies.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/segment_copier.h"
#include "base/text.h"
#include "measure/pattern.h"
#include "measure/samples.h"

namespace tcpx {
namespace {

constexpr uint64_t kUncachedBytes = uint64_t{256} << 20;
constexpr uint64_t kSeed = 37;

/// Rate of copies of `bytes`, one after the other. @param copy makes the n-th of a sample
Result<Measured> rate_of(uint64_t bytes, const RowPlan& plan, const std::function<Status(uint64_t)>& copy) {
  const Duration longest = plan.duration / static_cast<int64_t>(plan.samples);
  std::vector<double> rates;
  for (size_t sample = 0; sample < plan.samples; ++sample) {
    const TimePoint begin = Clock::steady().now();
    Duration taken{};
    uint64_t count = 0;
    while (taken < longest) {
      TCPX_RETURN_IF_ERROR(copy(count++));
      taken = Clock::steady().now() - begin;
    }
    rates.push_back(static_cast<double>(count * bytes) / static_cast<double>(taken.count()));
  }
  TCPX_ASSIGN_OR_RETURN(const Samples samples, Samples::create(std::move(rates)));
  Measured measured;
  measured.summary = samples.summary();
  return measured;
}

/// Memory of two GPUs, with what copies it.
class GpuCopies {
 public:
  GpuCopies(MemoryOps& memory, std::pair<int, int> gpus) : memory_(memory), gpus_(gpus) {}

  Status prepare(uint64_t bytes) {
    TCPX_ASSIGN_OR_RETURN(from_, memory_.allocate_device(gpus_.first, bytes));
    TCPX_ASSIGN_OR_RETURN(to_, memory_.allocate_device(gpus_.second, bytes));
    if (!memory_.reaches(gpus_.first, to_.device()))
      return Status(Code::kUnsupported, "copy between GPUs", concat("GPU ", gpus_.first, " does not reach GPU ", gpus_.second));
    TCPX_ASSIGN_OR_RETURN(lane_, memory_.make_copy_lane(gpus_.first));
    TCPX_ASSIGN_OR_RETURN(copier_, memory_.make_segment_copier(gpus_.first));
    shadow_.resize(bytes);
    return Status::ok();
  }

  Result<Measured> measure(uint64_t bytes, uint64_t range_bytes, const RowPlan& plan) {
    const std::span<std::byte> all(shadow_.data(), bytes);
    fill_pattern(all, kSeed + bytes);
    TCPX_RETURN_IF_ERROR(lane_->copy(from_.device(), all.data(), bytes));
    std::fill(all.begin(), all.end(), std::byte{0});
    TCPX_RETURN_IF_ERROR(lane_->copy(to_.device(), all.data(), bytes));
    const std::vector<CopySegment> ranges = segments(bytes, range_bytes);
    TCPX_ASSIGN_OR_RETURN(Measured measured, rate_of(bytes, plan, [&](uint64_t) -> Status {
                            return range_bytes == 0 ? lane_->copy(to_.device(), from_.device(), bytes) : copy(ranges);
                          }));
    TCPX_RETURN_IF_ERROR(lane_->copy(all.data(), to_.device(), bytes));
    for (const CopySegment& range : ranges) {
      const PatternCheck check = check_pattern(std::span(shadow_.data() + (range.to - to_.device()), range.bytes), kSeed + bytes,
                                               static_cast<uint64_t>(range.from - from_.device()));
      if (check.wrong != 0 && measured.verified()) measured.mismatch = concat("wrong bytes in a range: ", check.wrong);
    }
    return measured;
  }

 private:
  /// First the odd ranges, then the even ones: those that are neighbours here are none there.
  std::vector<CopySegment> segments(uint64_t bytes, uint64_t range_bytes) const {
    if (range_bytes == 0) return {{to_.device(), from_.device(), bytes}};
    const uint64_t count = bytes / range_bytes;
    std::vector<CopySegment> found(count);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t place = i / 2 + (i % 2 == 0 ? count / 2 : 0);
      found[i] = {to_.device() + place * range_bytes, from_.device() + i * range_bytes, range_bytes};
    }
    return found;
  }

  Status copy(const std::vector<CopySegment>& ranges) {
    CopyTicket last{};
    for (size_t at = 0; at < ranges.size(); at += kMaxCopySegments) {
      TCPX_ASSIGN_OR_RETURN(
          last, copier_->submit_between_gpus(std::span(ranges).subspan(at, std::min(kMaxCopySegments, ranges.size() - at))));
    }
    while (true) {
      TCPX_ASSIGN_OR_RETURN(const bool is_done, copier_->query(last));
      if (is_done) return Status::ok();
    }
  }

  MemoryOps& memory_;
  const std::pair<int, int> gpus_;  // of the source, of the destination
  MemoryBuffer from_, to_;
  std::unique_ptr<CopyLane> lane_;
  std::unique_ptr<SegmentCopier> copier_;
  std::vector<std::byte> shadow_;  // in host memory, of what is filled in and of what is compared
};

}  // namespace

Result<MeasuredBy> copies_of_a_thread(const std::vector<uint64_t>& sizes, const RowPlan& plan) {
  std::vector<std::byte> from(std::max(kUncachedBytes, *std::max_element(sizes.begin(), sizes.end())), std::byte{1});
  std::vector<std::byte> to(from.size());
  MeasuredBy measured;
  for (const uint64_t bytes : sizes) {
    const uint64_t places = from.size() / bytes;
    TCPX_ASSIGN_OR_RETURN(measured[bytes], rate_of(bytes, plan, [&](uint64_t n) {
                            const uint64_t at = n % places * bytes;
                            std::memcpy(to.data() + at, from.data() + at, bytes);
                            return Status::ok();
                          }));
  }
  return measured;
}

Result<MeasuredBy> copies_between_gpus(MemoryOps& memory, std::pair<int, int> gpus, const std::vector<uint64_t>& sizes,
                                       uint64_t range_bytes, const RowPlan& plan) {
  TCPX_ASSIGN_OR_RETURN(const EnteredDevice entered, memory.enter(gpus.first));
  GpuCopies copies(memory, gpus);
  TCPX_RETURN_IF_ERROR(copies.prepare(*std::max_element(sizes.begin(), sizes.end())));
  MeasuredBy measured;
  for (const uint64_t bytes : sizes) {
    if (bytes < 2 * range_bytes) continue;
    TCPX_ASSIGN_OR_RETURN(measured[bytes], copies.measure(bytes, range_bytes, plan));
  }
  return measured;
}

}  // namespace tcpx
