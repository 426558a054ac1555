#include "device/fragment_merge.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace tcpx {
namespace {

bool by_destination(const Fragment& a, const Fragment& b) {
  return a.dst_off < b.dst_off;
}

bool joins(const Fragment& first, const Fragment& next) {
  return uint64_t{first.src_off} + first.len == next.src_off && first.dst_off + first.len == next.dst_off &&
         next.len <= std::numeric_limits<uint32_t>::max() - first.len;
}

}  // namespace

void merge_fragments(std::span<const Fragment> list, std::vector<Fragment>& merged) {
  merged.assign(list.begin(), list.end());
  // One socket delivers in order; only several need the sort.
  if (!std::is_sorted(merged.begin(), merged.end(), by_destination)) std::sort(merged.begin(), merged.end(), by_destination);
  size_t kept = 0;
  for (const Fragment& fragment : merged) {
    if (kept != 0 && joins(merged[kept - 1], fragment)) {
      merged[kept - 1].len += fragment.len;
    } else {
      merged[kept++] = fragment;
    }
  }
  merged.resize(kept);
}

}  // namespace tcpx
