// Do fragments, in any order, cover a message exactly once? Answered in linear time, without sorting.
//
// Let no fragment be empty and all lengths sum up to the message. Then the fragments tile it if one of them begins at 0, and
// behind each of them another one begins or the message ends. For then they lead from 0 upwards, each beginning where the one
// before it ended, with nowhere to stop but at the end of the message. These cover it once and use up the sum, so none is left
// beside them. "Does one begin here?" is a question to a hash table, asked once per fragment.
#pragma once

#include <cstdint>
#include <span>

#include "tcpx/types.h"

namespace tcpx {

/// Proves that `list` tiles [0, message_bytes). Allocates nothing; takes 60 KB of stack.
/// @param list at most kMaxFragments, none without bytes, whose lengths sum up to message_bytes. Offsets may be anything.
/// @param secret chooses the hash function. Any number will do that whoever made the list cannot know.
/// @return true: it does. False: it does not, or more than 16 fragments met in one slot of the table. By chance that does not
///         happen in a lifetime; somebody who knows the secret can make it happen.
bool proves_tiling(std::span<const Fragment> list, uint64_t message_bytes, uint64_t secret);

/// Which of the table's 2^slot_bits slots (1 ... 32) `off` belongs to.
constexpr uint32_t tiling_slot(uint64_t off, uint64_t secret, int slot_bits) {
  constexpr uint64_t kMix = 0x9E3779B97F4A7C15;
  // Begins are often multiples of a page, and one product alone puts some such series into few slots.
  const uint64_t product = off * (secret * kMix | 1);
  return static_cast<uint32_t>((product ^ (product >> 32)) * kMix >> (64 - slot_bits));
}

}  // namespace tcpx
