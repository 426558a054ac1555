#include "measure/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tcpx {
namespace {

TEST(Pattern, PartsOfOneStreamAgreeWithTheWhole) {
  std::vector<std::byte> whole(1000), part(1000);
  fill_pattern(whole, 7);
  for (const size_t cut : {0u, 1u, 7u, 8u, 9u, 500u, 999u, 1000u}) {
    fill_pattern(std::span(part).first(cut), 7, 0);
    fill_pattern(std::span(part).subspan(cut), 7, cut);
    EXPECT_EQ(part, whole) << cut;
  }
  EXPECT_TRUE(verify_pattern(std::span<const std::byte>(whole).subspan(13, 100), 7, 13).is_ok());
}

TEST(Pattern, EverySingleWrongByteIsFound) {
  std::vector<std::byte> data(257);
  fill_pattern(data, 1);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] ^= std::byte{1};
    const Status status = verify_pattern(data, 1);
    ASSERT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.detail().find("the first at " + std::to_string(i)), std::string::npos);
    data[i] ^= std::byte{1};
  }
  EXPECT_FALSE(verify_pattern(data, 2).is_ok()) << "another seed must not pass";
}

TEST(Pattern, EveryWrongByteIsCounted) {
  for (const size_t offset : {0u, 3u, 8u}) {
    std::vector<std::byte> data(5000);
    fill_pattern(data, 9, offset);
    const std::vector<size_t> places = {1, 6, 7, 8, 600, 601, 2047, 4096, 4998, 4999};
    for (const size_t i : places) data[i] ^= std::byte{0x80};
    for (size_t begin = 0; begin < 20; ++begin) {
      const PatternCheck check = check_pattern(std::span<const std::byte>(data).subspan(begin), 9, offset + begin);
      const auto first = std::lower_bound(places.begin(), places.end(), begin);
      EXPECT_EQ(check.wrong, static_cast<uint64_t>(places.end() - first));
      EXPECT_EQ(check.first_wrong, *first - begin);
    }
  }
  EXPECT_EQ(check_pattern({}, 9).wrong, 0u);
}

TEST(Pattern, WordsOfTheStreamCanBeAskedForAnywhere) {
  std::vector<std::byte> data(100);
  fill_pattern(data, 5);
  for (size_t i = 0; i + 8 <= data.size(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, data.data() + i, 8);
    EXPECT_EQ(pattern_at(5, i), word) << i;
  }
}

TEST(Pattern, PreviewShowsHexAndText) {
  const std::byte data[] = {std::byte{'H'}, std::byte{'i'}, std::byte{0}};
  EXPECT_EQ(hex_preview(data), "48 69 00 |Hi.|");
  EXPECT_EQ(hex_preview(data, 1), "48 ... |H|");
}

}  // namespace
}  // namespace tcpx
