// Interfaces of this machine, and of a network namespace of its own, where links can be switched off.
#include "base/link_state.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/socket_address.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

constexpr int kSkipped = 77;

LinkWatch make_watch() {
  auto watch = LinkWatch::create();
  EXPECT_TRUE(watch.is_ok()) << watch.status().to_string();
  return std::move(*watch);
}

/// Runs `body` in a child process, so that this one keeps its namespace. @return its exit code.
template <class Body>
int exit_code_of_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

bool run(const char* command) {
  return std::system(command) == 0;
}

bool switch_on(const char* name) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  request.ifr_flags = IFF_UP;
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

TEST(LinkState, LoopbackIsUp) {
  EXPECT_EQ(make_watch().state("lo"), LinkState::kUp);
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
  const int code = exit_code_of_child([] {
    if (::unshare(CLONE_NEWNET) != 0) return kSkipped;
    const LinkWatch watch = make_watch();
    if (watch.state("lo") != LinkState::kDown) return 1;  // as in every new namespace
    if (!switch_on("lo")) return 2;
    return watch.state("lo") == LinkState::kUp ? 0 : 3;
  });
  if (code == kSkipped) GTEST_SKIP() << "this process may not make a network namespace (needs root)";
  EXPECT_EQ(code, 0);
}

TEST(LinkState, ALinkWithoutCarrierIsDown) {
  const int code = exit_code_of_child([] {
    if (::unshare(CLONE_NEWNET) != 0) return kSkipped;
    if (!run("ip link add veth-a type veth peer name veth-b 2>/dev/null")) return kSkipped;
    const LinkWatch watch = make_watch();
    const auto becomes = [&](const char* name, LinkState state) {
      // The kernel reports the carrier a little later.
      return wait_until([&] { return watch.state(name) == state; });
    };
    if (watch.state("veth-a") != LinkState::kDown) return 1;
    if (!run("ip link set veth-a up")) return 2;
    if (watch.state("veth-a") != LinkState::kDown) return 3;  // the other end is off
    if (!run("ip link set veth-b up")) return 4;
    if (!becomes("veth-a", LinkState::kUp) || !becomes("veth-b", LinkState::kUp)) return 5;
    if (!run("ip link set veth-b down")) return 6;
    if (watch.state("veth-b") != LinkState::kDown) return 7;
    if (!becomes("veth-a", LinkState::kDown)) return 8;
    if (!run("ip link del veth-a")) return 9;
    return watch.state("veth-a") == LinkState::kUnknown ? 0 : 10;
  });
  if (code == kSkipped) GTEST_SKIP() << "no network namespace with veth interfaces here (needs root and iproute2)";
  EXPECT_EQ(code, 0) << "the step that failed";
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
