// Gives the endpoints of a test program one way more: what stays on one host goes through a file.
#include <gtest/gtest.h>

#include "lanes/lanes.h"
#include "tests/lanes/file_lane.h"

namespace tcpx::testing {
namespace {

class FileLaneEverywhere final : public ::testing::Environment {
  void SetUp() override {
    auto& ways = ways_on_host();
    ways.insert(ways.begin(), {kFile, make_file_lane});
  }
  void TearDown() override { EXPECT_GT(moved_by_file(), 0u) << "no bytes went this way"; }
};

[[maybe_unused]] const ::testing::Environment* const kEverywhere = ::testing::AddGlobalTestEnvironment(new FileLaneEverywhere);

}  // namespace
}  // namespace tcpx::testing
