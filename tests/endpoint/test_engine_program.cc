// A program written for the RDMA engine of UCCL compiles against our header alone, and moves its bytes.
#include <gtest/gtest.h>

#include "tcpx/uccl.h"
#include "tests/support/endpoint_pair.h"

using namespace tcpx::uccl;  // NOLINT(google-build-using-namespace): as in a program that moves over
#include "tests/support/engine_program.h"

namespace tcpx::testing {
namespace {

TEST(EngineProgram, MovesOverByChangingAnInclude) {
  auto first = make_endpoint(), second = make_endpoint();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  uccl::Endpoint here(std::move(first)), there(std::move(second));
  std::vector<char> ours(1 << 20), theirs(ours.size());
  for (size_t i = 0; i < ours.size(); ++i) ours[i] = static_cast<char>(i * 131 >> 7);
  const std::string failed = engine_program<uccl::Endpoint, FifoItem>(here, there, ours, theirs);
  EXPECT_EQ(failed, "") << uccl::Endpoint::last_error().to_string();
}

}  // namespace
}  // namespace tcpx::testing
