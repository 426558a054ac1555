// The stream of test data that measure/pattern.h fills and checks on the host and device/pattern_launch.h on a GPU: one word of
// it, and what a check found. Seen by nvcc too.
#pragma once

#include <cstdint>

#include "device/host_device.h"

namespace tcpx {

/// Bytes of a word. Byte i of the stream is byte i % 8, lowest first, of word i / 8.
inline constexpr uint64_t kPatternWordBytes = 8;

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014), so that a byte out of place, a repeated page or a page of another seed
/// cannot look right. A function of the index, so that any part of a stream can be made by itself.
TCPX_HOST_DEVICE inline uint64_t pattern_word(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0x9e3779b97f4a7c15u + (index + 1) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The word of the stream that begins at byte `position`, which need not be a multiple of 8.
TCPX_HOST_DEVICE inline uint64_t pattern_at(uint64_t seed, uint64_t position) {
  const uint64_t index = position / kPatternWordBytes, shift = 8 * (position % kPatternWordBytes);
  if (shift == 0) return pattern_word(seed, index);
  return pattern_word(seed, index) >> shift | pattern_word(seed, index + 1) << (64 - shift);
}

/// What comparing with the stream found.
struct PatternCheck {
  uint64_t wrong = 0;        ///< bytes that differ
  uint64_t first_wrong = 0;  ///< of them the first, counted from the begin of the data; only when there is one
};

}  // namespace tcpx
