// The kernel's answers to questions for routes.
#include "base/route.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

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
    if (const auto six = find_route(v6, nullptr); six.is_ok()) {  // a machine without IPv6 has none
      EXPECT_TRUE(six->local && six->interface == "lo" && six->source == "::1") << six->interface << six->source;
    }
    EXPECT_EQ(find_route(v6, &kHere).status().code(), Code::kInvalidArgument);
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(Route, AnInterfaceIsAskedForItsOwnRoutes) {
  std::string no_veth;
  const std::string no_network = in_own_network([&] {
    if (!run("ip link add nic0 type veth peer name far0 2>/dev/null && ip link add nic1 type veth peer name far1")) {
      no_veth = "no veth interfaces here (needs iproute2)";
      return;
    }
    ASSERT_TRUE(run(
        "for i in 0 1; do ip address add 10.1.1.$((i + 1))/24 dev nic$i && ip link set nic$i up && ip link set far$i up; done"));
    const auto at = [](const char* host) { return resolve(host, 0)->front(); };
    const SocketAddress target = at("10.1.1.9"), second = at("10.1.1.2");
    EXPECT_EQ(find_route(target, &second)->interface, "nic0") << "the kernel takes the first";
    const auto through = find_route(target, &second, "nic1");
    ASSERT_TRUE(through.is_ok()) << through.status().to_string();
    EXPECT_EQ(through->interface, "nic1");
    EXPECT_EQ(find_route(at("10.2.2.2"), nullptr, "nic1").status().code(), Code::kPeerGone) << "it does not lead there";
    EXPECT_FALSE(find_route(target, nullptr, "no-such-one").is_ok());
    EXPECT_TRUE(find_route(at("10.1.1.1"), &second)->local);
    ASSERT_TRUE(run("ip route add 10.3.0.0/16 nexthop via 10.1.1.3 dev nic0 nexthop via 10.1.1.4 dev nic1"));
    EXPECT_EQ(find_route(at("10.3.3.3"), nullptr, "nic1")->interface, "nic1") << "one of several next hops";
    if (!run("ip -6 address add fd00:9::1/64 dev nic0 nodad 2>/dev/null && ip -6 address add fd00:9::2/64 dev nic1 nodad"))
      return;
    const SocketAddress six = at("fd00:9::9"), own = at("fd00:9::2");
    EXPECT_EQ(find_route(six, &own, "nic0")->interface, "nic0");
    EXPECT_EQ(find_route(six, &own, "nic1")->interface, "nic1");
    EXPECT_FALSE(find_route(six, nullptr, "lo").is_ok());
  });
  if (!no_network.empty()) GTEST_SKIP() << no_network;
  if (!no_veth.empty()) GTEST_SKIP() << no_veth;
}

}  // namespace
}  // namespace tcpx::testing
