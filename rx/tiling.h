// Proof that fragments, in any order, cover a message exactly once, in linear time and without sorting.
//
// Let no fragment be empty and all lengths sum up to the message. Then the fragments tile it if one of them begins at 0, and
// behind each of them another one begins or the message ends. They then form a chain from 0 upwards, each beginning where the
// previous one ended, that can only stop at the end of the message. The chain covers the message once and uses up the sum, so
// no other fragment is left. "Does one begin here?" is a hash table lookup, one per fragment.
#pragma once

#include <cstdint>
#include <span>

#include "tcpx/types.h"

namespace tcpx {

/// Proves that `list` tiles [0, message_bytes). Allocates nothing; takes 60 KB of stack.
/// @param list at most kMaxFragments, none of them empty, whose lengths sum up to message_bytes. Offsets may be anything.
/// @param secret chooses the hash function. Any number that the sender of the list cannot know.
/// @return true: it does. False: it does not, or more than 16 fragments collided in one slot of the table. That practically
///         never happens by chance, but an attacker who knows the secret can cause it.
bool proves_tiling(std::span<const Fragment> list, uint64_t message_bytes, uint64_t secret);

/// The slot of the table for `off`, of 2^slot_bits (1 ... 32).
constexpr uint32_t tiling_slot(uint64_t off, uint64_t secret, int slot_bits) {
  constexpr uint64_t kMix = 0x9E3779B97F4A7C15;
  // Begins are often multiples of a page, and a single multiplication puts some such series into few slots.
  const uint64_t product = off * (secret * kMix | 1);
  return static_cast<uint32_t>((product ^ (product >> 32)) * kMix >> (64 - slot_bits));
}

}  // namespace tcpx
