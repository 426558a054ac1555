// What tests have in common that flip bits at random. gtest's `repeat` flips more bits, each time others:
//   --gtest_filter=*NoFlippedBit* --gtest_repeat=500 --gtest_random_seed=1
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "base/text.h"

namespace tcpx::testing {

/// Bits that a case flips.
inline constexpr size_t kFlips = 100;

/// The seed of this repetition: from gtest's `random_seed` and the number of calls before.
inline uint64_t next_flip_seed() {
  static uint64_t calls = 0;
  return static_cast<uint64_t>(::testing::GTEST_FLAG(random_seed)) * 1'000'000 + calls++;
}

/// @param outcomes of flips, with their numbers
inline void print_flips(uint64_t seed, const std::map<std::string, size_t>& outcomes) {
  std::string text = concat("seed ", seed);
  for (const auto& [outcome, count] : outcomes) text += concat(", ", outcome, " ", count);
  std::printf("[ FLIPPED  ] %s\n", text.c_str());
}

}  // namespace tcpx::testing
