// From a scatter list to a descriptor block: the checked form that unpackers take.
//
// A list comes from a plugin or a parser and is not trusted: every fragment must lie inside the bounce pool and inside
// the message, the message inside the destination, and the fragments together must cover the message exactly once. A list that
// fails is refused before a byte moves. Pure functions; no logging; no allocation per message once a block has been used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx {

/// Bounds that a list is checked against. Addresses are in the space the unpacker works in (device addresses on a GPU).
struct UnpackTarget {
  const std::byte* pool = nullptr;   ///< base that `src_off` counts from; never nullptr
  uint64_t pool_bytes = 0;           ///< 1 ... kMaxPoolBytes
  std::byte* destination = nullptr;  ///< base that `dst_off` counts from; nullptr only with destination_bytes == 0
  uint64_t destination_bytes = 0;
};

/// A checked scatter list. Only `build` fills one, so a non-empty block may be copied without further checks.
/// One thread at a time.
class DescriptorBlock {
 public:
  /// Replaces the content by a copy of `list`, which must tile [0, message_bytes) exactly. Takes linear time in the number of
  /// fragments, whatever their order; a refusal may sort them.
  /// @param list at most kMaxFragments entries in any order, none of them empty; no entry for message_bytes == 0. Each is
  ///        read once, so the list may lie in memory that the plugin still writes to. Not a part of this block.
  /// @param message_bytes at most kMaxMessageBytes and target.destination_bytes.
  /// @return kProtocol naming the offending fragment by its place in `list`, kInvalidArgument for a bad target; the block is then
  ///         empty.
  Status build(std::span<const Fragment> list, uint64_t message_bytes, const UnpackTarget& target);
  void clear();

  std::span<const Fragment> fragments() const { return fragments_; }
  uint64_t message_bytes() const { return message_bytes_; }
  const UnpackTarget& target() const { return target_; }
  /// Length of the longest fragment; 0 without fragments.
  uint32_t longest_bytes() const { return longest_bytes_; }
  /// Source minus destination address of every fragment, ORed together. Divisible by a power of two when both addresses of
  /// every fragment have the same remainder modulo it; 0 without fragments.
  uint64_t joined_distance() const { return joined_distance_; }
  /// Start of the message in the pool when it is contiguous there, in however many fragments; nullptr otherwise, and without
  /// fragments.
  const std::byte* contiguous_source() const { return contiguous_source_; }

 private:
  bool scan();

  std::vector<Fragment> fragments_;  // capacity kMaxFragments from the first build on
  UnpackTarget target_;
  uint64_t message_bytes_ = 0;
  uint32_t longest_bytes_ = 0;
  uint64_t joined_distance_ = 0;
  const std::byte* contiguous_source_ = nullptr;
};

/// The oracle: copies fragment by fragment, byte by byte, with no cleverness. Host-readable pool and destination only.
void cpu_unpack(const DescriptorBlock& block);

}  // namespace tcpx
