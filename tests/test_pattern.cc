#include "perf/pattern.h"

#include <gtest/gtest.h>

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

TEST(Pattern, PreviewShowsHexAndText) {
  const std::byte data[] = {std::byte{'H'}, std::byte{'i'}, std::byte{0}};
  EXPECT_EQ(hex_preview(data), "48 69 00 |Hi.|");
  EXPECT_EQ(hex_preview(data, 1), "48 ... |H|");
}

}  // namespace
}  // namespace tcpx
