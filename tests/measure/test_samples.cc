#include "measure/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace tcpx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Samples samples(std::vector<double> values) {
  return Samples::create(std::move(values)).value();
}

TEST(Samples, OddAndEvenCountsHaveTheirMedian) {
  EXPECT_EQ(samples({3, 1, 2}).summary(), (Summary{3, 1, 2, 3}));
  EXPECT_EQ(samples({4, 1, 3, 2}).summary(), (Summary{4, 1, 2.5, 4}));
  EXPECT_EQ(samples({7}).summary(), (Summary{1, 7, 7, 7}));
}

TEST(Samples, TheLargestValuesDoNotOverflow) {
  constexpr double kMost = std::numeric_limits<double>::max();
  EXPECT_EQ(samples({kMost, kMost}).median(), kMost);
  EXPECT_EQ(samples({-kMost, kMost}).median(), 0);
}

TEST(Samples, OrderOfTheSummaryHoldsForAnyValues) {
  std::mt19937_64 random(1);
  for (size_t count = 1; count < 200; ++count) {
    std::vector<double> values(count);
    for (double& value : values) value = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 40) - 60);
    const Samples set = samples(values);
    EXPECT_LE(set.min(), set.median());
    EXPECT_LE(set.median(), set.max());
    const auto below = std::count_if(values.begin(), values.end(), [&](double value) { return value <= set.median(); });
    EXPECT_GE(2 * static_cast<size_t>(below), count) << "half of them are not above the median";
  }
}

TEST(Samples, NothingAndWhatIsNoNumberAreRefused) {
  for (const std::vector<double>& values : {std::vector<double>{}, {1, NAN}, {kInfinity}, {-kInfinity, 2}}) {
    EXPECT_EQ(Samples::create(values).status().code(), Code::kInvalidArgument);
  }
  EXPECT_NE(Samples::create({1, NAN}).status().detail().find("sample 1 of 2"), std::string::npos);
}

TEST(Measure, WarmUpRunsAreMadeAndDropped) {
  int runs = 0;
  const auto found = measure({.warm_up_count = 3, .sample_count = 5}, [&]() -> Result<double> { return ++runs; });
  ASSERT_TRUE(found.is_ok());
  EXPECT_EQ(runs, 8);
  EXPECT_EQ(found->summary(), (Summary{5, 4, 6, 8}));
  runs = 0;
  ASSERT_TRUE(measure({.warm_up_count = 0, .sample_count = 6}, [&]() -> Result<double> { return ++runs; }).is_ok());
  EXPECT_EQ(runs, 6);
}

TEST(Measure, TheFirstFailureEndsIt) {
  for (const int failing : {1, 3, 8}) {  // while warming up, the first sample, the last
    int runs = 0;
    const auto found = measure({.warm_up_count = 2, .sample_count = 6}, [&]() -> Result<double> {
      if (++runs == failing) return Status(Code::kMismatch, "verify data", "byte 7");
      return 1;
    });
    EXPECT_EQ(found.status().code(), Code::kMismatch) << failing;
    EXPECT_EQ(found.status().detail(), "byte 7");
    EXPECT_EQ(runs, failing);
  }
}

TEST(Measure, PlansOutOfRangeRunNothing) {
  int runs = 0;
  const auto run = [&]() -> Result<double> { return ++runs; };
  for (const MeasurePlan plan : {MeasurePlan{0, 4}, MeasurePlan{0, 0}, MeasurePlan{0, MeasurePlan::kMostRuns + 1},
                                 MeasurePlan{MeasurePlan::kMostRuns + 1, 5}, MeasurePlan{SIZE_MAX, 5}}) {
    EXPECT_EQ(measure(plan, run).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(runs, 0);
}

TEST(Measure, ValuesThatAreNoNumbersAreRefused) {
  EXPECT_EQ(measure(MeasurePlan{}, []() -> Result<double> { return kInfinity; }).status().code(), Code::kInvalidArgument);
}

TEST(Rates, FastestTimeIsTheLargestRate) {
  const auto rates = gigabytes_per_second(2'000'000'000, samples({1, 2, 4}));
  ASSERT_TRUE(rates.is_ok());
  EXPECT_EQ(rates->summary(), (Summary{3, 0.5, 1, 2}));
}

TEST(Rates, TimesNotAboveZeroAreRefused) {
  EXPECT_EQ(gigabytes_per_second(1, samples({0, 1})).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(gigabytes_per_second(1, samples({-1, 1})).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx
