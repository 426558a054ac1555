// Answers of a real kernel to the doctor's questions about the network, over loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "base/socket_io.h"
#include "doctor/network.h"
#include "tests/support/own_network.h"

namespace tcpx::doctor {
namespace {

using testing::in_own_network;

const SocketAddress kHere = SocketAddress::loopback(0);
constexpr Duration kLong = std::chrono::seconds(20), kShort = std::chrono::milliseconds(100);

PeerWay way_from(const std::string& source, int mtu = 1500) {
  return {.interface = "lo", .source = resolve(source, 0)->front(), .mtu = mtu};
}

TEST(DoctorNetworkAnswers, ListsInterfacesWithTheirNetworks) {
  const auto interfaces = list_interfaces();
  const auto lo = std::find_if(interfaces.begin(), interfaces.end(), [](const auto& entry) { return entry.name == "lo"; });
  ASSERT_NE(lo, interfaces.end());
  EXPECT_TRUE(lo->up && lo->loopback);
  const auto address = std::find_if(lo->addresses.begin(), lo->addresses.end(),
                                    [](const auto& entry) { return entry.address.host() == "127.0.0.1"; });
  ASSERT_NE(address, lo->addresses.end());
  EXPECT_EQ(address->prefix, 8);
}

TEST(DoctorNetworkAnswers, APortIsTakenWhileSomebodyListens) {
  auto listener = listen_tcp(kHere, 1);
  ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
  const uint16_t port = local_address(listener->get())->port();
  EXPECT_EQ(try_bind(port), EADDRINUSE);
  listener->reset();
  EXPECT_EQ(try_bind(port), 0);
  EXPECT_EQ(try_bind(port), 0);  // it was let go
}

TEST(DoctorNetworkAnswers, RunsProgramsOfTheSystem) {
  using End = ChildAnswer::End;
  const ChildAnswer echo = run_command("echo", {"a  b; $HOME"}, kLong);
  EXPECT_TRUE(echo.end == End::kExited && echo.number == 0);
  EXPECT_EQ(echo.said, "a  b; $HOME\n");  // no shell
  const ChildAnswer cat = run_command("cat", {}, kLong);
  EXPECT_TRUE(cat.end == End::kExited && cat.said.empty());  // no input
  const ChildAnswer ls = run_command("ls", {"/no/such/place"}, kLong);
  EXPECT_NE(ls.number, 0);
  EXPECT_NE(ls.said.find("No such file"), std::string::npos) << ls.said;
  EXPECT_EQ(run_command("no-such-program-anywhere", {}, kLong).end, End::kNotStarted);
  EXPECT_EQ(run_command("sleep", {"600"}, kShort).end, End::kTimedOut);
  EXPECT_NE(run_command("yes", {}, kLong).number, 0);  // says more than anybody wants to know
}

TEST(DoctorNetworkAnswers, ConnectsFromAnAddress) {
  auto listener = listen_tcp(kHere, 8);
  ASSERT_TRUE(listener.is_ok());
  const SocketAddress target = local_address(listener->get()).value();
  std::vector<PeerWay> ways = {way_from("127.0.0.1"), way_from("127.0.0.2"), way_from("192.0.2.200")};
  try_connecting(target, ways, kLong);
  EXPECT_TRUE(ways[0].connected.is_ok()) << ways[0].connected.to_string();
  EXPECT_TRUE(ways[1].connected.is_ok()) << ways[1].connected.to_string();
  EXPECT_EQ(ways[2].connected.native(), EADDRNOTAVAIL) << ways[2].connected.to_string();  // not ours
  listener->reset();
  try_connecting(target, ways, kLong);
  EXPECT_EQ(ways[0].connected.native(), ECONNREFUSED) << ways[0].connected.to_string();
}

TEST(DoctorNetworkAnswers, SilenceIsATimeout) {
  auto listener = listen_tcp(kHere, 0);
  ASSERT_TRUE(listener.is_ok());
  const SocketAddress target = local_address(listener->get()).value();
  std::vector<PeerWay> ways(8, way_from("127.0.0.1"));  // more than wait in a queue for one
  try_connecting(target, ways, kShort);
  EXPECT_TRUE(ways.front().connected.is_ok()) << ways.front().connected.to_string();
  EXPECT_EQ(ways.back().connected.code(), Code::kTimeout) << ways.back().connected.to_string();
}

TEST(DoctorNetworkAnswers, FullDatagramsArriveOverLoopbackAndNowhereElse) {
  const std::string skipped = in_own_network([] {
    std::vector<PeerWay> ways = {way_from("127.0.0.1"), way_from("127.0.0.2", 9000), way_from("127.0.0.1", 65536)};
    probe_paths(kHere, ways, kLong);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(ways[i].path.value().answer, PathAnswer::kArrives);
      EXPECT_GE(ways[i].path->path_mtu, 65535);
    }
    EXPECT_FALSE(ways[2].path.has_value()) << "longer than any datagram";
    // Nor does anybody answer without a network.
    ASSERT_EQ(testing::set_loopback(false), 0);
    probe_paths(resolve("10.9.9.9", 0)->front(), std::span(ways).first(1), kShort);
    EXPECT_EQ(ways[0].path.value().answer, PathAnswer::kSilent);
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

}  // namespace
}  // namespace tcpx::doctor
