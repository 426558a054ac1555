// NicWatch: when it looks, how long it waits for an interface, and for which.
#include "transfer/nic_watch.h"

#include <gtest/gtest.h>

#include <set>

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using enum NicWatch::Tolerance;

class Watch : public ::testing::Test {
 protected:
  std::set<std::string> down_;
  int asked_ = 0;
  TimePoint start_{};
  NicWatch watch_{[this](const std::string& nic) {
                    ++asked_;
                    return down_.contains(nic);
                  },
                  2, start_};
};

TEST_F(Watch, LooksTenTimesASecond) {
  int looks = 0;
  for (int ms = 0; ms < 1000; ++ms) looks += watch_.due(start_ + milliseconds(ms)) ? 1 : 0;
  EXPECT_EQ(looks, 10);
}

TEST_F(Watch, WithoutToleranceOneLookIsEnough) {
  EXPECT_TRUE(watch_.look(0, "nic0", "", kNone).is_ok());
  down_ = {"nic0"};
  const Status lost = watch_.look(0, "nic0", ", which matters", kNone);
  EXPECT_EQ(lost.code(), Code::kSystem);
  EXPECT_EQ(lost.detail(), "nic0 is down, which matters");
}

TEST_F(Watch, AnInterfaceThatIsToleratedMayComeBack) {
  for (int round = 0; round < 2; ++round) {
    down_ = {"nic0"};
    for (int i = 0; i < NicWatch::kToleratedLooks; ++i) EXPECT_TRUE(watch_.look(0, "nic0", "", kBrief).is_ok()) << i;
    down_ = {};
    EXPECT_TRUE(watch_.look(0, "nic0", "", kBrief).is_ok());
  }
  down_ = {"nic0"};
  for (int i = 0; i < NicWatch::kToleratedLooks; ++i) EXPECT_TRUE(watch_.look(0, "nic0", "", kBrief).is_ok());
  EXPECT_TRUE(watch_.look(1, "nic0", "", kBrief).is_ok()) << "another user of it counts for itself";
  EXPECT_FALSE(watch_.look(0, "nic0", "", kBrief).is_ok());
}

TEST_F(Watch, WhatHasNoNameOrIsNotAskedAboutIsNeverDown) {
  down_ = {""};
  EXPECT_TRUE(watch_.down("", "").is_ok());
  EXPECT_EQ(asked_, 0);
  down_ = {"nic0"};
  EXPECT_FALSE(watch_.down("nic0", "").is_ok());
  watch_.stop();
  EXPECT_TRUE(watch_.down("nic0", "").is_ok());
  EXPECT_TRUE(NicWatch({}, 1, start_).look(0, "nic0", "", kNone).is_ok());
}

}  // namespace
}  // namespace tcpx
