// What was written for the RDMA engine of UCCL compiles against our header alone, and moves its bytes.
#include <gtest/gtest.h>

#include "tests/support/endpoint_pair.h"
#include "tests/support/engine_program.h"

namespace tcpx::testing {
namespace {

TEST(EngineProgram, MovesOverByChangingAnInclude) {
  const auto here = make_endpoint(), there = make_endpoint();
  ASSERT_NE(here, nullptr);
  ASSERT_NE(there, nullptr);
  std::vector<char> ours(1 << 20), theirs(ours.size());
  for (size_t i = 0; i < ours.size(); ++i) ours[i] = static_cast<char>(i * 131 >> 7);
  const std::string failed = engine_program<Endpoint, FifoItem>(*here, *there, ours, theirs);
  EXPECT_EQ(failed, "") << Endpoint::last_error().to_string();
}

}  // namespace
}  // namespace tcpx::testing
