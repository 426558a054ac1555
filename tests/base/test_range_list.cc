#include "base/range_list.h"

#include <gtest/gtest.h>

#include <random>

namespace tcpx::testing {
namespace {

// The oracle keeps the place of every single byte.
TEST(RangeList, EveryPartIsWhereItsBytesAre) {
  std::mt19937 random(3);
  std::vector<std::byte> memory(20'000);
  for (int round = 0; round < 200; ++round) {
    RangeList list;
    std::vector<std::byte*> places;
    for (size_t i = 0; i < 1 + random() % 40; ++i) {
      const size_t bytes = random() % 3 == 0 ? random() % 3 : random() % 400;
      std::byte* const begin = random() % 4 == 0 && !places.empty() ? places.back() + 1 : &memory[random() % 15'000];
      if (begin + bytes > memory.data() + memory.size()) continue;
      list.add(begin, bytes);
      for (size_t byte = 0; byte < bytes; ++byte) places.push_back(begin + byte);
    }
    ASSERT_EQ(list.bytes(), places.size());
    EXPECT_EQ(list.begin(), places.empty() ? nullptr : places.front());
    for (int i = 0; i < 50; ++i) {
      const size_t offset = random() % (places.size() + 1), bytes = random() % (places.size() - offset + 1);
      const size_t most = random() % 3 == 0 ? 1 + random() % 5 : SIZE_MAX;
      std::vector<iovec> parts;
      list.append_to(parts, offset, bytes, most);
      ASSERT_LE(parts.size(), most);
      size_t at = offset;
      for (const iovec& part : parts) {
        ASSERT_GT(part.iov_len, 0u);
        for (size_t byte = 0; byte < part.iov_len; ++byte) ASSERT_EQ(static_cast<std::byte*>(part.iov_base) + byte, places[at++]);
      }
      if (parts.size() < most) {
        ASSERT_EQ(at, offset + bytes);
      }
    }
  }
}

TEST(RangeList, NeighboursAreOnePart) {
  std::byte memory[100];
  RangeList list;
  for (size_t i = 0; i < 10; ++i) list.add(memory + 10 * i, 10);
  std::vector<iovec> parts;
  list.append_to(parts, 5, 90);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].iov_base, memory + 5);
  EXPECT_EQ(parts[0].iov_len, 90u);
}

}  // namespace
}  // namespace tcpx::testing
