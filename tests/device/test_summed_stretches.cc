// The stretches of a copy that is summed: where they are cut, and that nothing is lost there.
#include "device/summed_stretches.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tcpx::testing {
namespace {

std::byte* at(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);
}

uint64_t bytes_of(std::span<const CopySegment> segments) {
  uint64_t sum = 0;
  for (const CopySegment& segment : segments) sum += segment.bytes;
  return sum;
}

TEST(SummedStretches, ShrinkUntilOneIsShort) {
  SummedStretches stretches;
  const std::vector<CopySegment> one{{at(1u << 30), at(3), 64u << 20}};
  stretches.begin(one, 64u << 20);
  std::vector<uint64_t> lengths;
  while (stretches.left() != 0) lengths.push_back(bytes_of(stretches.next()));
  EXPECT_EQ(lengths, (std::vector<uint64_t>{48u << 20, 12u << 20, 4u << 20}));
  stretches.begin(one, SummedStretches::kLastBytes);
  EXPECT_EQ(stretches.next().data(), one.data()) << "a short copy is not cut";
  EXPECT_EQ(stretches.left(), 0u);
}

TEST(SummedStretches, HaveAllSegmentsInTheirOrder) {
  std::mt19937_64 random(1);
  SummedStretches stretches;
  for (int round = 0; round < 200; ++round) {
    std::vector<CopySegment> segments;
    uint64_t total = 0;
    for (uint64_t i = 0; i < 1 + random() % 60; ++i) {
      const uint64_t bytes = random() % 4 == 0 ? 0 : random() % (uint64_t{1} << (round % 30));
      segments.push_back({at((i + 1) << 40), at((i + 1000) << 40), bytes});
      total += bytes;
    }
    stretches.begin(segments, total);
    size_t segment = 0, count = 0;
    uint64_t in_segment = 0;
    while (stretches.left() != 0) {
      ASSERT_LE(++count, SummedStretches::kMost);
      const uint64_t left = stretches.left();
      const std::span<const CopySegment> stretch = stretches.next();
      ASSERT_EQ(left - stretches.left(), bytes_of(stretch));
      for (const CopySegment& part : stretch) {
        if (part.bytes == 0) continue;
        for (; in_segment == segments[segment].bytes; in_segment = 0) ++segment;
        ASSERT_EQ(part.to, segments[segment].to + in_segment) << "round " << round;
        ASSERT_EQ(part.from, segments[segment].from + in_segment) << "round " << round;
        in_segment += part.bytes;
        ASSERT_LE(in_segment, segments[segment].bytes);
      }
      ASSERT_TRUE(stretches.left() > 0 || bytes_of(stretch) <= SummedStretches::kLastBytes);
      total -= bytes_of(stretch);
    }
    ASSERT_EQ(total, 0u);
  }
}

}  // namespace
}  // namespace tcpx::testing
