#include "perf/chart_axis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace tcpx {
namespace {

using Labels = std::vector<std::string>;

Labels labels_of(const std::vector<AxisTick>& ticks) {
  Labels labels;
  for (const AxisTick& tick : ticks) labels.push_back(tick.label);
  return labels;
}

TEST(ChartAxis, BytesAreWrittenInTheirLargestExactUnit) {
  const std::pair<double, const char*> cases[] = {{0, "0 B"},
                                                  {64, "64 B"},
                                                  {1448, "1448 B"},
                                                  {1024, "1 KiB"},
                                                  {1536, "1.5 KiB"},
                                                  {4096, "4 KiB"},
                                                  {4097, "4097 B"},
                                                  {1 << 19, "512 KiB"},
                                                  {1 << 20, "1 MiB"},
                                                  {std::ldexp(1, 30), "1 GiB"},
                                                  {std::ldexp(5, 38), "1.25 TiB"},
                                                  {0.5, "0.5 B"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(format_bytes(value), text);
}

TEST(ChartAxis, NumbersHaveNoNoise) {
  const std::pair<double, const char*> cases[] = {{0, "0"},       {0.1 + 0.2, "0.3"}, {1000, "1000"},  {1048576, "1048576"},
                                                  {-2.5, "-2.5"}, {1e12, "1e+12"},    {2e-6, "2e-06"}, {500000000, "500000000"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(format_tick(value), text);
}

TEST(ChartAxis, LinearTicksAreRound) {
  const AxisRange range(AxisScale::kLinear, 3, 1748, 0, 0.1, true);
  EXPECT_EQ(range.position(0), 0) << "begins at zero";
  EXPECT_DOUBLE_EQ(range.position(1748), 0.9);
  EXPECT_EQ(labels_of(range.ticks(AxisLabels::kNumbers, 5)), (Labels{"0", "500", "1000", "1500"}));
  EXPECT_EQ(labels_of(AxisRange(AxisScale::kLinear, 0, 1, 0, 0, true).ticks(AxisLabels::kNumbers, 5)),
            (Labels{"0", "0.2", "0.4", "0.6", "0.8", "1"}));
  EXPECT_EQ(labels_of(AxisRange(AxisScale::kLinear, -30, 20, 0, 0, true).ticks(AxisLabels::kNumbers, 5)),
            (Labels{"-30", "-20", "-10", "0", "10", "20"}));
  EXPECT_EQ(labels_of(AxisRange(AxisScale::kLinear, 0, 4096, 0, 0, true).ticks(AxisLabels::kBytes, 4)),
            (Labels{"0 B", "1 KiB", "2 KiB", "3 KiB", "4 KiB"}));
}

TEST(ChartAxis, Log2TicksArePowersEvenlySpaced) {
  const AxisRange range(AxisScale::kLog2, 64, 1 << 20, 0, 0, false);
  EXPECT_EQ(labels_of(range.ticks(AxisLabels::kBytes, 8)),
            (Labels{"64 B", "256 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB"}));
  EXPECT_EQ(range.position(64), 0);
  EXPECT_EQ(range.position(1 << 20), 1);
  EXPECT_DOUBLE_EQ(range.position(1 << 13), 0.5) << "13 lies in the middle of 6 and 20";
  EXPECT_EQ(labels_of(AxisRange(AxisScale::kLog2, 1, 132, 0, 0, false).ticks(AxisLabels::kNumbers, 12)),
            (Labels{"1", "2", "4", "8", "16", "32", "64", "128"}));
}

TEST(ChartAxis, Log10TicksAreDecadesOrOneTwoFive) {
  EXPECT_EQ(labels_of(AxisRange(AxisScale::kLog10, 0.35, 1748, 0, 0, false).ticks(AxisLabels::kNumbers, 7)),
            (Labels{"1", "10", "100", "1000"}));
  EXPECT_EQ(labels_of(AxisRange(AxisScale::kLog10, 9, 110, 0, 0, false).ticks(AxisLabels::kNumbers, 7)),
            (Labels{"10", "20", "50", "100"}));
  EXPECT_DOUBLE_EQ(AxisRange(AxisScale::kLog10, 1, 100, 0, 0, false).position(10), 0.5);
}

TEST(ChartAxis, ASingleValueGetsAnAxisThatCanBeRead) {
  for (const AxisScale scale : {AxisScale::kLinear, AxisScale::kLog2, AxisScale::kLog10}) {
    for (const double value : {1e-15, 0.07, 1.0, 1448.0, 1e15}) {
      const AxisRange range(scale, value, value, 0.05, 0.05, false);
      EXPECT_GT(range.position(value), 0.04) << value;
      EXPECT_LT(range.position(value), 0.96) << value;
      EXPECT_GE(range.ticks(AxisLabels::kNumbers, 12).size(), 2u) << value;
    }
  }
  const AxisRange zero(AxisScale::kLinear, 0, 0, 0, 0, true);
  EXPECT_EQ(zero.position(0), 0);
  EXPECT_GE(zero.ticks(AxisLabels::kNumbers, 5).size(), 2u);
}

TEST(ChartAxis, ValuesAndTicksLieInsideAndRiseForAnyRange) {
  std::mt19937_64 random(1);
  const auto number = [&] { return std::pow(10.0, static_cast<double>(random() % 3'000'000) / 1e5 - 15); };
  for (int i = 0; i < 20'000; ++i) {
    const AxisScale scale = std::array{AxisScale::kLinear, AxisScale::kLog2, AxisScale::kLog10}[random() % 3];
    const AxisLabels labels = random() % 2 == 0 ? AxisLabels::kNumbers : AxisLabels::kBytes;
    const double a = number(), b = random() % 4 == 0 ? a * (1 + 1e-12) : number();
    const AxisRange range(scale, std::min(a, b), std::max(a, b), 0.03, 0.1, random() % 2 == 0);
    for (const double value : {a, b}) {
      ASSERT_GE(range.position(value), 0) << a << " " << b;
      ASSERT_LE(range.position(value), 1) << a << " " << b;
    }
    for (const size_t most : {2, 5, 12}) {
      const std::vector<AxisTick> ticks = range.ticks(labels, most);
      ASSERT_LE(ticks.size(), most + 1) << a << " " << b;
      ASSERT_GE(ticks.size(), most == 12 ? 2u : 0u) << a << " " << b;
      double before = -1e-9;
      for (const AxisTick& tick : ticks) {
        ASSERT_GT(range.position(tick.value), before) << a << " " << b;
        before = range.position(tick.value);
      }
      ASSERT_LT(before, 1 + 1e-9) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace tcpx
