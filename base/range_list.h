// RangeList: host memory in several places that is registered with a plugin, sent and received as if it were one piece.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tcpx {

/// Filled by one thread, then shared and not changed.
class RangeList {
 public:
  /// @param data host memory @param bytes 0 adds nothing
  void add(std::byte* data, size_t bytes) {
    const bool follows = !ranges_.empty() && ranges_.back().data + (bytes_ - ranges_.back().offset) == data;
    if (bytes > 0 && !follows) ranges_.push_back({bytes_, data});
    bytes_ += bytes;
  }
  uint64_t bytes() const { return bytes_; }
  /// The address of the first byte. Those of all others count on from there, wherever they really lie. Null if there is none.
  std::byte* begin() const { return ranges_.empty() ? nullptr : ranges_.front().data; }
  /// Appends the places of `bytes` bytes from `offset` on, as far as `parts` stays within `most` elements.
  /// @param offset, bytes within the list
  void append_to(std::vector<iovec>& parts, uint64_t offset, uint64_t bytes, size_t most = SIZE_MAX) const;

 private:
  struct Range {
    uint64_t offset;  // of its first byte in the list
    std::byte* data;
  };
  std::vector<Range> ranges_;
  uint64_t bytes_ = 0;
};

}  // namespace tcpx
