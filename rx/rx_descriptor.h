// From a scatter list to a descriptor block: the checked form that unpackers take.
//
// A list comes from a plugin or a parser and is trusted with nothing: every fragment must lie inside the bounce pool and inside the
// message, the message inside the destination, and the fragments together must cover the message exactly once. What fails is
// refused before a byte moves. Pure functions; no logging; nothing is allocated per message once a block has been used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx {

/// What a list is checked against. Addresses are in the space the unpacker works in (device addresses on a GPU).
struct UnpackTarget {
  const std::byte* pool = nullptr;  ///< base that `src_off` counts from
  uint64_t pool_bytes = 0;          ///< 1 ... kMaxPoolBytes
  std::byte* destination = nullptr;
  uint64_t destination_bytes = 0;
};

/// A checked scatter list. Only `build` fills one, so whoever holds a non-empty block may copy without looking again.
class DescriptorBlock {
 public:
  DescriptorBlock();

  /// Replaces the content by `list`, which must tile [0, message_bytes) exactly.
  /// @param list at most kMaxFragments entries in any order; empty is legal for message_bytes == 0. Zero-length fragments: refused.
  /// @return kProtocol naming the first offending fragment, kInvalidArgument for a bad target; the block is then empty.
  Status build(std::span<const Fragment> list, uint64_t message_bytes, const UnpackTarget& target);
  void clear();

  std::span<const Fragment> fragments() const { return fragments_; }
  uint64_t message_bytes() const { return message_bytes_; }
  const UnpackTarget& target() const { return target_; }

 private:
  std::vector<Fragment> fragments_;   // capacity kMaxFragments from the start
  std::vector<uint16_t> by_offset_;  // scratch for the tiling check
  UnpackTarget target_;
  uint64_t message_bytes_ = 0;
};

/// The oracle: copies fragment by fragment, byte by byte, with no cleverness. Host-readable pool and destination only.
void cpu_unpack(const DescriptorBlock& block);

}  // namespace tcpx
