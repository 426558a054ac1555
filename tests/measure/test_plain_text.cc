#include "measure/plain_text.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

TEST(PlainText, Utf8OfEveryLengthIsPlain) {
  for (const char* text : {"", "NVIDIA H200", "<&>\"'", "µs", "≥ 0.95", "\U0001F680", "\u00a0", "\ufffd", "\U0010ffff"}) {
    EXPECT_TRUE(is_plain_text(text)) << text;
  }
}

TEST(PlainText, BrokenUtf8IsNot) {
  // Lone continuation, cut sequences of each length, overlong forms, a surrogate, beyond the last character, bytes never used.
  for (const char* text : {"\x80", "a\xc3", "\xe2\x89", "\xf0\x9f\x9a", "\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf",
                           "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xc3(", "\xfe\xbf"}) {
    EXPECT_FALSE(is_plain_text(text)) << ::testing::PrintToString(std::string(text));
  }
}

TEST(PlainText, ControlCharactersAreNot) {
  for (const std::string_view text : {"a\nb", "\t", "\x1b[1m", "\x7f", "\u0085", "\uffff"}) EXPECT_FALSE(is_plain_text(text));
  EXPECT_FALSE(is_plain_text(std::string_view("\0", 1)));
}

TEST(PlainText, BytesAreWrittenInTheirLargestExactUnit) {
  const std::pair<double, const char*> cases[] = {
      {0, "0 B"},         {64, "64 B"},          {1448, "1448 B"},       {1024, "1 KiB"},
      {1536, "1.5 KiB"},  {4096, "4 KiB"},       {4097, "4097 B"},       {1 << 19, "512 KiB"},
      {1 << 20, "1 MiB"}, {0x40000000, "1 GiB"}, {0x1.4p40, "1.25 TiB"}, {1e12 + 1, "1000000000001 B"},
      {0.5, "0.5 B"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(format_bytes(value), text);
}

TEST(PlainText, WidthCountsCharacters) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("µs ≥"), 4u);
}

TEST(PlainText, LinesAreCutAtSpaces) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrap("", 10), Lines{});
  EXPECT_EQ(wrap("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap("one two three", 6), (Lines{"one", "two", "three"}));
  EXPECT_EQ(wrap("µs µs", 5), Lines{"µs µs"}) << "characters, not bytes";
  EXPECT_EQ(wrap("a muchlongerword b", 5), (Lines{"a", "muchlongerword", "b"}));
  EXPECT_EQ(wrap("  a   b  ", 5), Lines{"a b"});
}

TEST(PlainText, MeasuredValuesHaveThreeDigitsOrMore) {
  const std::pair<double, const char*> cases[] = {
      {0, "0"},           {-0.0, "0"},      {0.35, "0.350"},        {1.04, "1.04"},  {35.06, "35.1"},
      {154.4, "154"},     {1748.2, "1748"}, {67108864, "67108864"}, {-2.5, "-2.50"}, {0.0004, "4.00e-04"},
      {2e15, "2.00e+15"}, {0.001, "0.001"}, {99.96, "100.0"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(format_measured(value), text);
}

TEST(PlainText, FixedNumbersHaveNoMinusZero) {
  EXPECT_EQ(format_fixed(-0.001, 2), "0.00");
  EXPECT_EQ(format_fixed(-0.006, 2), "-0.01");
  EXPECT_EQ(format_fixed(12.5, 0), "12");
  EXPECT_EQ(format_fixed(999'999'999'999'999, 15), "999999999999999.000000000000000");
}

}  // namespace
}  // namespace tcpx
