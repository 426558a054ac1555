// TraceRange without a profiler. The view of a profiler is checked with Nsight Systems.
#include <gtest/gtest.h>

#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/trace_range.h"

namespace tcpx {
namespace {

static_assert(!std::is_copy_constructible_v<TraceRange> && std::is_nothrow_move_constructible_v<TraceRange>);

TEST(TraceRange, NvtxIsBuiltInWhereTheToolkitHasIt) {
  EXPECT_EQ(TraceRange::is_built_in(), TCPX_EXPECTS_NVTX != 0);
}

TEST(TraceRange, BeginsAndEndsOnAnyThread) {
  TraceRange none;
  none.end();
  EXPECT_FALSE(none.is_seen());
  std::vector<TraceRange> begun;
  for (int i = 0; i < 1000; ++i) begun.emplace_back("test", 4096);
  std::thread([ranges = std::move(begun)]() mutable {
    for (TraceRange& range : ranges) range.end();
    for (const TraceRange& range : ranges) EXPECT_FALSE(range.is_seen());
  }).join();
}

TEST(TraceRange, MovingLeavesNothingToEnd) {
  TraceRange first("first", 1);
  const bool seen = first.is_seen();  // under a profiler
  TraceRange second = std::move(first);
  EXPECT_FALSE(first.is_seen());
  EXPECT_EQ(second.is_seen(), seen);
  second = TraceRange();
  EXPECT_FALSE(second.is_seen());
}

}  // namespace
}  // namespace tcpx
