// A copier of segments whose copies end on command of the test, with success or not. The memory is the host's.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/segment_copier.h"
#include "tests/support/plain_sum.h"

namespace tcpx::testing {

/// Failure of a copy, as tests script it.
inline Status copy_failure() {
  return Status(Code::kCuda, "copy", "scripted", Domain::kCuda, 700);
}

class SlowCopier final : public SegmentCopier {
 public:
  /// From now on copies stay in flight until `end_one` or `release`.
  void hold() { holding_ = true; }
  /// The same, from the next checksum on.
  void hold_sums() { holds_at_sum_ = true; }
  /// Ends all copies, and holds none from now on.
  void release() {
    holding_ = holds_at_sum_ = false;
    while (!under_way_.empty()) end_one();
  }
  /// Ends the oldest copy.
  void end_one() {
    const auto& [segments, key, sum, place] = under_way_.front();
    if (key != nullptr) *sum = plain_sum(*key, segments);
    for (const CopySegment& segment : segments) {
      if (key == nullptr && segment.bytes > 0) std::memcpy(segment.to, segment.from, segment.bytes);
    }
    if (place) {
      if (before_sum) before_sum();
      *sum = plain_part(*place, segments);
    }
    under_way_.pop_front();
    ++ended_;
  }
  size_t under_way() const { return under_way_.size(); }
  uint64_t submitted() const { return submitted_; }
  /// Of them, checksums.
  uint64_t sums() const { return sums_; }

  Status fail_submit;  ///< result of `submit` from now on, unless ok
  Status fail_query;   ///< the same for `query`
  Status fail_sum;     ///< the same for `submit_sum` and `submit_summed`
  std::function<void()> before_sum;  ///< called when bytes that are to be summed have been copied

  Result<CopyTicket> submit(std::span<const CopySegment> segments) override {
    return begin({.segments = {segments.begin(), segments.end()}});
  }
  Result<CopyTicket> submit_sum(const ByteSumKey& key, std::span<const CopySegment> segments, uint64_t& sum) override {
    if (!fail_sum.is_ok()) return fail_sum;
    holding_ |= holds_at_sum_;
    auto ticket = begin({.segments = {segments.begin(), segments.end()}, .key = &key, .sum = &sum});
    if (ticket.is_ok()) ++sums_;
    return ticket;
  }
  Result<CopyTicket> submit_summed(std::span<const CopySegment> segments, const SumPlace& place, uint64_t& part) override {
    if (!fail_sum.is_ok()) return fail_sum;
    holding_ |= holds_at_sum_;
    auto ticket = begin({.segments = {segments.begin(), segments.end()}, .sum = &part, .place = place});
    if (ticket.is_ok()) ++sums_;
    return ticket;
  }
  Result<bool> query(CopyTicket ticket) override {
    if (!fail_query.is_ok()) return fail_query;
    return static_cast<uint64_t>(ticket) < ended_;
  }

 private:
  struct Work {
    std::vector<CopySegment> segments;
    const ByteSumKey* key = nullptr;  // of a checksum
    uint64_t* sum = nullptr;
    std::optional<SumPlace> place = std::nullopt;  // of a copy that is summed
  };
  Result<CopyTicket> begin(Work work) {
    if (!fail_submit.is_ok()) return fail_submit;
    under_way_.push_back(std::move(work));
    if (!holding_) end_one();
    return CopyTicket{submitted_++};
  }

  bool holding_ = false, holds_at_sum_ = false;
  uint64_t submitted_ = 0, ended_ = 0, sums_ = 0;
  std::deque<Work> under_way_;
};

}  // namespace tcpx::testing
