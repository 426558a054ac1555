// LaneTest: two ends of lanes whose memory is filled at random.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "tests/lanes/parts.h"
#include "tests/lanes/two_ends.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

class LaneTest : public ::testing::Test {
 protected:
  static constexpr size_t kMemory = TwoEnds::kMemory;

  static Bytes contents(const TwoEnds::End& end, const Parts& parts) {
    Bytes all;
    for (const auto& [offset, bytes] : parts)
      all.insert(all.end(), end.memory.begin() + static_cast<ptrdiff_t>(offset),
                 end.memory.begin() + static_cast<ptrdiff_t>(offset + bytes));
    return all;
  }
  void fill(TwoEnds::End& end) {
    for (size_t at = 0; at < kMemory; at += sizeof(uint64_t)) {
      const uint64_t word = random_();
      std::memcpy(&end.memory[at], &word, sizeof word);
    }
  }
  bool over(TwoEnds& ends, size_t jobs) {
    return wait_until([&] {
      ends.step();
      return ends.sender.ended.size() >= jobs && ends.receiver.ended.size() >= jobs;
    });
  }
  std::mt19937_64 random_{11};
};

}  // namespace tcpx::testing
