// Random lists against a byte map, and cpu_unpack between guard bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "rx/rx_descriptor.h"
#include "tests/support/byte_map.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

constexpr uint64_t kLast64 = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kLast32 = std::numeric_limits<uint32_t>::max();

struct RandomMessage {
  uint64_t pool_bytes, message_bytes, destination_bytes;
  std::vector<Fragment> list;
};

/// Checks byte by byte that `build` must take the message.
bool is_legal(const RandomMessage& m) {
  if (m.message_bytes > m.destination_bytes || m.list.size() > kMaxFragments) return false;
  const auto inside = [&](const Fragment& f) { return f.len > 0 && uint64_t{f.src_off} + f.len <= m.pool_bytes; };
  return std::all_of(m.list.begin(), m.list.end(), inside) && testing::tiles_by_byte_map(m.list, m.message_bytes);
}

RandomMessage random_message(std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return random() % n; };
  RandomMessage m{.pool_bytes = 1 + below(300), .message_bytes = below(200), .destination_bytes = 0, .list = {}};
  m.destination_bytes = m.message_bytes + below(3);
  for (uint64_t at = 0; at < m.message_bytes;) {
    const uint64_t len = 1 + below(std::min({m.message_bytes - at, m.pool_bytes, uint64_t{40}}));
    m.list.push_back({static_cast<uint32_t>(below(m.pool_bytes - len + 1)), static_cast<uint32_t>(len), at});
    at += len;
  }
  if (below(3) != 0) std::shuffle(m.list.begin(), m.list.end(), random);
  return m;
}

TEST(RxRandom, RandomTilingsAreBuiltAndUnpackAsAByteMapSays) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 5000; ++round) {
    SCOPED_TRACE(round);
    const RandomMessage m = random_message(random);
    ASSERT_TRUE(is_legal(m));
    std::vector<std::byte> pool(m.pool_bytes), destination(m.destination_bytes + 1, std::byte{0xA5});
    for (std::byte& b : pool) b = static_cast<std::byte>(random());
    std::vector<std::byte> expected = destination;
    for (const Fragment& f : m.list)
      std::copy_n(pool.begin() + f.src_off, f.len, expected.begin() + static_cast<ptrdiff_t>(f.dst_off));
    DescriptorBlock block;
    ASSERT_OK(block.build(m.list, m.message_bytes, {pool.data(), m.pool_bytes, destination.data(), m.destination_bytes}));
    cpu_unpack(block);
    ASSERT_EQ(destination, expected);
  }
}

TEST(RxRandom, RandomMutationsAreRefusedUnlessTheByteMapAllowsThem) {
  std::mt19937_64 random(4);
  DescriptorBlock block;
  std::byte pool{}, destination{};  // nothing is read or written
  const auto below = [&](uint64_t n) { return random() % n; };
  int legal_count = 0, refused_count = 0;
  for (int round = 0; round < 20000; ++round) {
    SCOPED_TRACE(round);
    RandomMessage m = random_message(random);
    for (uint64_t i = below(3); i < 3 && !m.list.empty(); ++i) {
      Fragment& f = m.list[below(m.list.size())];
      switch (below(9)) {
        case 0:
          f.len += static_cast<uint32_t>(below(3)) - 1;
          break;
        case 1:
          f.dst_off += below(5) - 2;
          break;
        case 2:
          f.dst_off = kLast64 - below(50);
          break;
        case 3:
          f.src_off = static_cast<uint32_t>(kLast32 - below(50));
          break;
        case 4:
          f.src_off += static_cast<uint32_t>(below(9)) - 4;
          break;
        case 5:
          m.list.push_back(f);
          break;
        case 6:
          m.list.erase(m.list.begin() + static_cast<ptrdiff_t>(below(m.list.size())));
          break;
        case 7:
          m.message_bytes += below(3) - 1;
          break;
        case 8:
          std::swap(f.dst_off, m.list[below(m.list.size())].dst_off);
          break;
      }
      if (m.message_bytes > 1000) m.message_bytes = 0;
    }
    const bool legal = is_legal(m);
    const Status status = block.build(m.list, m.message_bytes, {&pool, m.pool_bytes, &destination, m.destination_bytes});
    ASSERT_EQ(status.is_ok(), legal) << status.to_string();
    ASSERT_EQ(block.fragments().size(), legal ? m.list.size() : 0u);
    ++(legal ? legal_count : refused_count);
  }
  EXPECT_GT(legal_count, 1000);
  EXPECT_GT(refused_count, 10000);
}

TEST(CpuUnpack, Trap22_AtEveryAlignmentAndLengthTouchesNothingElse) {
  constexpr size_t kGuard = 32;
  constexpr std::byte kUntouched{0xA5};
  DescriptorBlock block;
  alignas(16) std::byte pool[128];
  for (size_t i = 0; i < sizeof pool; ++i) pool[i] = static_cast<std::byte>(i * 7 + 1);
  alignas(16) std::byte room[kGuard + 16 + 64 + kGuard];
  for (uint32_t src = 0; src < 16; ++src) {
    for (uint32_t dst = 0; dst < 16; ++dst) {
      for (uint32_t len = 0; len <= 64; ++len) {
        std::fill(std::begin(room), std::end(room), kUntouched);
        std::byte* const destination = room + kGuard + dst;
        std::vector<Fragment> list;
        if (len > 0) list.push_back({src, len, 0});
        ASSERT_TRUE(block.build(list, len, {pool, sizeof pool, destination, len}).is_ok());
        cpu_unpack(block);
        for (size_t i = 0; i < sizeof room; ++i) {
          const bool inside = i >= kGuard + dst && i < kGuard + dst + len;
          ASSERT_EQ(room[i], inside ? pool[src + i - kGuard - dst] : kUntouched) << src << " " << dst << " " << len << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tcpx
