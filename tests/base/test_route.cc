// The kernel's answers to questions for routes.
#include "base/route.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/own_network.h"

namespace tcpx::testing {
namespace {

const SocketAddress kHere = SocketAddress::loopback(0);

TEST(Route, TheKernelTellsWhereAPacketWouldGo) {
  const std::string skipped = in_own_network([] {
    const Result<Route> here = find_route(kHere, nullptr), from = find_route(kHere, &kHere);
    ASSERT_TRUE(here.is_ok() && from.is_ok()) << here.status().to_string() << from.status().to_string();
    EXPECT_TRUE(here->local && here->interface == "lo" && here->source == "127.0.0.1") << here->interface << here->source;
    EXPECT_EQ(from->interface, "lo");
    const SocketAddress away = resolve("10.9.9.9", 0)->front();
    EXPECT_EQ(find_route(away, nullptr).status().native(), ENETUNREACH);
    EXPECT_FALSE(find_route(kHere, &away).is_ok());  // nobody sends from there
    const SocketAddress v6 = resolve("::1", 0)->front();
    EXPECT_EQ(find_route(v6, nullptr).status().code(), Code::kUnsupported);
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

}  // namespace
}  // namespace tcpx::testing
