// Bytes of ranges of memory that are held: one after the other they are a message.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "endpoint/memory_registry.h"

namespace tcpx {

/// All ranges of one message are of one kind.
inline bool is_on_gpu(const std::vector<HeldRange>& ranges) {
  return !ranges.empty() && ranges.front().use.region().type == MemoryType::kCuda;
}

/// Of host memory. @return a view of the range, when there is one alone; else of `room`, which has them all
inline std::span<const std::byte> gather(const std::vector<HeldRange>& ranges, std::vector<std::byte>& room) {
  if (ranges.size() == 1) return {ranges.front().data, ranges.front().bytes};
  room.clear();
  for (const HeldRange& range : ranges) room.insert(room.end(), range.data, range.data + range.bytes);
  return room;
}

/// Into host memory. @param data as many bytes as the ranges have
inline void scatter(const std::vector<HeldRange>& ranges, std::span<const std::byte> data) {
  for (const HeldRange& range : ranges) {
    if (range.bytes > 0) std::memcpy(range.data, data.data(), range.bytes);
    data = data.subspan(range.bytes);
  }
}

}  // namespace tcpx
