// Coverage of a list of fragments, counted byte by byte and independently of rx/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tcpx/types.h"

namespace tcpx::testing {

/// True if `list` covers each of `message_bytes` bytes once and nothing beyond. For small numbers only.
inline bool tiles_by_byte_map(const std::vector<Fragment>& list, uint64_t message_bytes) {
  std::vector<int> hits(message_bytes);
  for (const Fragment& f : list) {
    for (uint64_t i = 0; i < f.len; ++i) {
      if (f.dst_off >= message_bytes || f.dst_off + i >= message_bytes) return false;
      ++hits[f.dst_off + i];
    }
  }
  return std::all_of(hits.begin(), hits.end(), [](int n) { return n == 1; });
}

}  // namespace tcpx::testing
