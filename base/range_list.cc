#include "base/range_list.h"

#include <algorithm>

namespace tcpx {

void RangeList::append_to(std::vector<iovec>& parts, uint64_t offset, uint64_t bytes, size_t most) const {
  if (bytes == 0) return;
  const auto begins_behind = [](uint64_t at, const Range& range) { return at < range.offset; };
  auto range = std::upper_bound(ranges_.begin(), ranges_.end(), offset, begins_behind) - 1;
  for (; bytes > 0 && parts.size() < most; ++range) {
    const uint64_t end = range + 1 == ranges_.end() ? bytes_ : (range + 1)->offset;
    const uint64_t part = std::min(bytes, end - offset);
    parts.push_back({range->data + (offset - range->offset), part});
    offset += part;
    bytes -= part;
  }
}

}  // namespace tcpx
