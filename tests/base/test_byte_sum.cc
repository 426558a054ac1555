// The byte sum beside its definition, and what cuts and changes do to it.
#include "base/byte_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

namespace tcpx::testing {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

uint64_t sum_of(const ByteSumKey& key, std::span<const std::byte> bytes) {
  ByteSumPart part(key, 0);
  part.add(bytes);
  return part.value(bytes.size());
}

// By the definition, word by word.
uint64_t slow_sum_of(const ByteSumKey& key, std::span<const std::byte> bytes) {
  using Wide = unsigned __int128;
  const size_t words = (bytes.size() + 3) / 4;
  uint64_t sum = 0;
  for (size_t i = 0; i < words; ++i) {
    Wide term = 0;
    for (size_t at = 4 * i; at < std::min(4 * i + 4, bytes.size()); ++at)
      term += Wide{std::to_integer<uint64_t>(bytes[at])} << (8 * (at % 4));
    for (size_t n = 0; n < words - i; ++n) term = term * key.multiplier() % ByteSumKey::kPrime;
    sum = static_cast<uint64_t>((sum + term) % ByteSumKey::kPrime);
  }
  return sum;
}

// Computed with the whole numbers of Python.
TEST(ByteSum, IsWhatItsDefinitionSays) {
  const auto of_text = [](std::string_view text, uint64_t seed) {
    return sum_of(ByteSumKey(seed), std::as_bytes(std::span(text)));
  };
  EXPECT_EQ(of_text("", 7), 0u);
  EXPECT_EQ(of_text("a", 7), 0x61000002a7u);
  EXPECT_EQ(of_text("123456789", 0), 0x19991c2c1b9b1b5u);
  Bytes counted(5120);
  for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<std::byte>(i);
  const Bytes ones(5003, std::byte{0xff});
  for (const bool vectors : {true, false}) {
    EXPECT_EQ(sum_of(ByteSumKey(0x0123456789abcdef, vectors), counted), 0x5f6c598cc339c3eu);
    EXPECT_EQ(sum_of(ByteSumKey(~uint64_t{0}, vectors), ones), 0x17dc204fb46a36a7u);
  }
}

TEST(ByteSum, OfEveryLengthIsThatOfTheDefinition) {
  const Bytes bytes = random_bytes(1100, 1);
  for (const bool vectors : {true, false}) {
    const ByteSumKey key(12345, vectors);
    for (size_t size = 0; size <= bytes.size(); size += size < 40 || size > 1015 ? 1 : 17) {
      const auto string = std::span(bytes).first(size);
      ASSERT_EQ(sum_of(key, string), slow_sum_of(key, string)) << size << " bytes";
    }
  }
}

TEST(ByteSum, PartsAddUpHoweverTheStringIsCut) {
  const ByteSumKey key(99);
  const Bytes bytes = random_bytes(20011, 2);
  const uint64_t whole = sum_of(key, bytes);
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<size_t> cuts{0, bytes.size()};
    for (int i = 0; i < 12; ++i) cuts.push_back(random() % (bytes.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<uint64_t> values;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      ByteSumPart part(key, cuts[i]);
      const auto piece = std::span(bytes).subspan(cuts[i], cuts[i + 1] - cuts[i]);
      const size_t middle = piece.empty() ? 0 : random() % piece.size();
      part.add(piece.first(middle));  // in two steps
      part.add(piece.subspan(middle));
      values.push_back(part.value(bytes.size()));
    }
    std::shuffle(values.begin(), values.end(), random);
    uint64_t sum = 0;
    for (const uint64_t value : values) sum = ByteSumKey::add(sum, value);
    ASSERT_EQ(sum, whole) << "round " << round;
  }
}

TEST(ByteSum, EveryFlippedBitAndEveryMovedPageChangesIt) {
  const ByteSumKey key(4);
  Bytes bytes = random_bytes(1501, 4);
  const uint64_t before = sum_of(key, bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_NE(sum_of(key, bytes), before) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  Bytes pages(3 * 4096);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::byte>(i % 251);
  const uint64_t in_order = sum_of(key, pages);
  std::swap_ranges(pages.begin(), pages.begin() + 4096, pages.begin() + 4096);
  EXPECT_NE(sum_of(key, pages), in_order) << "two pages in each other's place";
  EXPECT_NE(sum_of(key, Bytes(4096)), sum_of(key, Bytes(4096, std::byte{1}))) << "a page that never came";
}

TEST(ByteSum, OtherKeysHaveOtherSums) {
  const Bytes bytes = random_bytes(64, 5);
  EXPECT_NE(sum_of(ByteSumKey(1), bytes), sum_of(ByteSumKey(2), bytes));
  const ByteSumKey key(3);
  EXPECT_EQ(key.power(0), 1u);
  EXPECT_EQ(key.power(5), ByteSumKey::multiply(key.power(2), key.power(3)));
}

}  // namespace
}  // namespace tcpx::testing
