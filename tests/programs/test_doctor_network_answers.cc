// Answers of a real kernel to the doctor's questions about the network, over loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "base/socket_io.h"
#include "programs/doctor/network.h"
#include "tests/support/own_network.h"

namespace tcpx::doctor {
namespace {

using testing::in_own_network;

const SocketAddress kHere = SocketAddress::loopback(0);
constexpr Duration kLong = std::chrono::seconds(20), kShort = std::chrono::milliseconds(100);

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
  const CommandAnswer echo = run_command("echo", {"a  b; $HOME"}, kLong);
  EXPECT_TRUE(echo.installed && !echo.timed_out && echo.exit_code == 0);
  EXPECT_EQ(echo.text, "a  b; $HOME\n");  // no shell
  const CommandAnswer cat = run_command("cat", {}, kLong);
  EXPECT_TRUE(cat.installed && !cat.timed_out && cat.text.empty());  // no input
  const CommandAnswer ls = run_command("ls", {"/no/such/place"}, kLong);
  EXPECT_NE(ls.exit_code, 0);
  EXPECT_NE(ls.text.find("No such file"), std::string::npos) << ls.text;
  EXPECT_FALSE(run_command("no-such-program-anywhere", {}, kLong).installed);
}

TEST(DoctorNetworkAnswers, ProgramsThatDoNotEndAreEnded) {
  EXPECT_TRUE(run_command("sleep", {"600"}, kShort).timed_out);
  EXPECT_NE(run_command("yes", {}, kLong).exit_code, 0);  // says more than anybody wants to know
}

TEST(DoctorNetworkAnswers, ConnectsFromAnAddress) {
  auto listener = listen_tcp(kHere, 8);
  ASSERT_TRUE(listener.is_ok());
  const SocketAddress target = local_address(listener->get()).value();
  const std::vector<SocketAddress> sources = {kHere, resolve("127.0.0.2", 0)->front(), resolve("192.0.2.200", 0)->front()};
  std::vector<Status> answers = connect_from(target, sources, kLong);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_TRUE(answers[0].is_ok()) << answers[0].to_string();
  EXPECT_TRUE(answers[1].is_ok()) << answers[1].to_string();
  EXPECT_EQ(answers[2].native(), EADDRNOTAVAIL) << answers[2].to_string();  // not ours
  listener->reset();
  answers = connect_from(target, sources, kLong);
  EXPECT_EQ(answers[0].native(), ECONNREFUSED) << answers[0].to_string();
}

TEST(DoctorNetworkAnswers, SilenceIsATimeout) {
  auto listener = listen_tcp(kHere, 0);
  ASSERT_TRUE(listener.is_ok());
  const SocketAddress target = local_address(listener->get()).value();
  const std::vector<SocketAddress> sources(8, kHere);  // more than wait in a queue for one
  const std::vector<Status> answers = connect_from(target, sources, kShort);
  EXPECT_TRUE(answers.front().is_ok()) << answers.front().to_string();
  EXPECT_EQ(answers.back().code(), Code::kTimeout) << answers.back().to_string();
}

TEST(DoctorNetworkAnswers, AsksForRoutes) {
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

TEST(DoctorNetworkAnswers, FullDatagramsArriveOverLoopback) {
  const std::string skipped = in_own_network([] {
    const std::vector<PathQuestion> questions = {{kHere, 1500}, {resolve("127.0.0.2", 0)->front(), 9000}};
    for (const PathProbe& probe : probe_paths(kHere, questions, kLong)) {
      EXPECT_EQ(probe.answer, PathAnswer::kArrives);
      EXPECT_GE(probe.path_mtu, 65535);
    }
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(DoctorNetworkAnswers, WithoutANetworkDatagramsGetNoAnswer) {
  const std::string skipped = in_own_network([] {
    const std::vector<PathQuestion> questions = {{kHere, 1500}};
    ASSERT_EQ(testing::set_loopback(false), 0);
    const SocketAddress away = resolve("10.9.9.9", 0)->front();
    EXPECT_EQ(probe_paths(away, questions, kShort).at(0).answer, PathAnswer::kSilent);
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

}  // namespace
}  // namespace tcpx::doctor
