// The values of SegmentCopier::submit_sum and submit_summed, by the one who looks at the bytes in their order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/byte_sum.h"
#include "base/segment_copier.h"

namespace tcpx::testing {

/// @param open finds the bytes of a `from`
template <class Open = std::identity>
uint64_t plain_sum(const ByteSumKey& key, std::span<const CopySegment> segments, Open open = {}) {
  ByteSumPart whole(key, 0);
  uint64_t total = 0;
  for (const CopySegment& segment : segments) {
    whole.add({open(segment.from), segment.bytes});
    total += segment.bytes;
  }
  return whole.value(total);
}

/// @param open finds the bytes of a `to`
template <class Open = std::identity>
uint64_t plain_part(const SumPlace& place, std::span<const CopySegment> segments, Open open = {}) {
  ByteSumPart part(place.key, place.begin);
  for (const CopySegment& segment : segments) part.add({open(segment.to), segment.bytes});
  return part.value(place.total);
}

}  // namespace tcpx::testing
