// Interfaces of this machine, and of a network namespace of its own, where links can be switched off.
#include "base/link_state.h"

#include <gtest/gtest.h>
#include <sys/socket.h>


#include "base/socket_address.h"
#include "tests/support/ok.h"
#include "tests/support/own_network.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

LinkWatch make_watch() {
  return must(LinkWatch::create());
}

TEST(LinkState, LoopbackIsUp) {
  EXPECT_EQ(make_watch().state("lo"), LinkState::kUp);
}

TEST(LinkState, AllOfOneNamespaceShareADescriptor) {
  const auto one = must(LinkWatch::shared()), other = must(LinkWatch::shared());
  EXPECT_EQ(one, other);
  EXPECT_EQ(one->state("lo"), LinkState::kUp);
}

TEST(LinkState, WhatIsNoInterfaceIsUnknown) {
  const LinkWatch watch = make_watch();
  for (const std::string name : {"", "no-such-if", "lo ", "l", "/", "exactly15chars_", "of-16-characters", "lo\n"}) {
    EXPECT_EQ(watch.state(name), LinkState::kUnknown) << name;
  }
  EXPECT_EQ(watch.state(std::string(100'000, 'x')), LinkState::kUnknown);
  EXPECT_EQ(watch.state("lo" + std::string(14, '\0')), LinkState::kUnknown) << "too long, whatever is in it";
}

TEST(LinkState, ASwitchIsSeenAtOnce) {
  const std::string missing = in_own_network([] {
    const LinkWatch watch = make_watch();
    for (const bool up : {false, true}) {
      ASSERT_EQ(set_loopback(up), 0);
      EXPECT_EQ(watch.state("lo"), up ? LinkState::kUp : LinkState::kDown);
    }
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(LinkState, ALinkWithoutCarrierIsDown) {
  std::string missing;
  const std::string no_network = in_own_network([&] {
    if (!run("ip link add veth-a type veth peer name veth-b 2>/dev/null")) {
      missing = "no veth interfaces here (needs iproute2)";
      return;
    }
    const LinkWatch watch = make_watch();
    const auto becomes = [&](const char* name, LinkState state) {
      // The kernel reports the carrier a little later.
      return wait_until([&] { return watch.state(name) == state; });
    };
    EXPECT_EQ(watch.state("veth-a"), LinkState::kDown);
    ASSERT_TRUE(run("ip link set veth-a up"));
    EXPECT_EQ(watch.state("veth-a"), LinkState::kDown) << "the other end is off";
    ASSERT_TRUE(run("ip link set veth-b up"));
    EXPECT_TRUE(becomes("veth-a", LinkState::kUp) && becomes("veth-b", LinkState::kUp));
    ASSERT_TRUE(run("ip link set veth-b down"));
    EXPECT_EQ(watch.state("veth-b"), LinkState::kDown);
    EXPECT_TRUE(becomes("veth-a", LinkState::kDown));
    ASSERT_TRUE(run("ip link del veth-a"));
    EXPECT_EQ(watch.state("veth-a"), LinkState::kUnknown);
  });
  if (!no_network.empty()) missing = no_network;
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(InterfaceOfSocket, IsTheOneWhoseAddressItHas) {
  const UniqueFd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress loopback = SocketAddress::loopback(0);
  ASSERT_EQ(::bind(bound.get(), loopback.get(), loopback.length()), 0);
  EXPECT_EQ(interface_of_socket(bound.get()), "lo");
  const UniqueFd everywhere(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(interface_of_socket(everywhere.get()), "");
  const UniqueFd local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(interface_of_socket(local.get()), "");
  EXPECT_EQ(interface_of_socket(-1), "");
}

}  // namespace
}  // namespace tcpx::testing
