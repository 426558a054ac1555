// The value of SegmentCopier::submit_sum, by the one who looks at the bytes in their order.
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

}  // namespace tcpx::testing
