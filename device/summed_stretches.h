// SummedStretches: cuts a long copy into stretches, so that a GPU sums one while it copies the next. A sum is faster than a copy from
// another GPU, so each stretch is longer than all behind it; nothing is left to overlap with only for the last one, which is short.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/segment_copier.h"

namespace tcpx {

/// One copy at a time. It keeps its memory for the next one.
class SummedStretches {
 public:
  /// A copy that is not longer is one stretch; NVLink moves so much in 12 us.
  static constexpr uint64_t kLastBytes = 4u << 20;
  /// Most stretches of any copy: what is left shrinks to a quarter with each.
  static constexpr size_t kMost = 32;

  /// @param segments must stay until the last stretch has been taken @param bytes of all of them
  void begin(std::span<const CopySegment> segments, uint64_t bytes) {
    rest_ = segments;
    bytes_ = bytes;
    cut_ = 0;
  }
  /// Bytes behind the stretches taken so far; 0: all have been taken.
  uint64_t left() const { return bytes_; }

  /// @return the segments of the next stretch, the first and the last of them perhaps cut; valid until the next call. Empty ones may be
  /// left out
  std::span<const CopySegment> next() {
    constexpr uint64_t kGrain = 64 * 1024;  // what one block sums at least
    uint64_t wanted = bytes_ <= kLastBytes ? bytes_ : bytes_ / 4 * 3 / kGrain * kGrain;
    bytes_ -= wanted;
    if (bytes_ == 0 && cut_ == 0) return rest_;
    stretch_.clear();
    while (wanted > 0) {
      const CopySegment& whole = rest_.front();
      const uint64_t part = std::min<uint64_t>(wanted, whole.bytes - cut_);
      if (part > 0) stretch_.push_back({whole.to + cut_, whole.from + cut_, part});
      wanted -= part;
      cut_ += part;
      if (cut_ < whole.bytes) break;
      rest_ = rest_.subspan(1);
      cut_ = 0;
    }
    return stretch_;
  }

 private:
  std::span<const CopySegment> rest_;
  uint64_t cut_ = 0;  // bytes of the first one of `rest_` that are in a stretch before
  uint64_t bytes_ = 0;
  std::vector<CopySegment> stretch_;
};

}  // namespace tcpx
