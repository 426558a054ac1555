// A peer at several addresses, some of which lead nowhere.
#include "base/connect_first.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "base/socket_io.h"
#include "base/text.h"
#include "tests/support/dead_address.h"
#include "tests/support/ok.h"
#include "tests/support/own_network.h"
#include "tests/support/process_state.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string texts(const std::vector<SocketAddress>& addresses) {
  std::string text;
  for (const SocketAddress& address : addresses) text += concat(text.empty() ? "" : " ", address.host());
  return text;
}

TEST(ConnectFirst, FamiliesTakeTurnsFromTheFirstOn) {
  EXPECT_EQ(texts(interleave_families({at("10.0.0.1"), at("10.0.0.2"), at("10.0.0.3"), at("fd00::1"), at("fd00::2")})),
            "10.0.0.1 fd00::1 10.0.0.2 fd00::2 10.0.0.3");
  EXPECT_EQ(texts(interleave_families({at("fd00::1"), at("fd00::2"), at("10.0.0.1")})), "fd00::1 10.0.0.1 fd00::2");
  EXPECT_EQ(texts(interleave_families({at("10.0.0.2"), at("10.0.0.1")})), "10.0.0.2 10.0.0.1");
  EXPECT_EQ(texts(interleave_families({})), "");
}

// A timeout of one attempt is 3 s.
TEST(ConnectFirst, DeadAddressesCostNoTimeout) {
  const DeadAddress one(own_host(2)), other(own_host(3));
  const auto listener = must(listen_tcp(at(own_host(4), 0), 4));
  const auto before = descriptor_count();
  const TimePoint begin = Clock::steady().now();
  const auto there = must(local_address(listener.get()));
  WayMemory memory;
  auto socket = must(connect_first({one.address(), other.address(), there}, WhenRefused::kTryAgain, soon(), nullptr, memory));
  EXPECT_LT(Clock::steady().now() - begin, milliseconds(2900));
  EXPECT_GE(Clock::steady().now() - begin, 2 * kConnectDelay);
  EXPECT_EQ(must(peer_address(socket.get())).to_string(), there.to_string());
  EXPECT_EQ(descriptor_count(), before + 1) << "the other attempts are closed";
}

// In the order in which they are tried.
std::string in_turn(const std::vector<ConnectRace::Target>& targets, WayMemory& memory) {
  return ConnectRace(targets, WhenRefused::kTryAgain, memory).operation();
}

std::string in_turn(const SocketAddress& one, const SocketAddress& other, WayMemory& memory) {
  return in_turn({{one}, {other}}, memory);
}

std::string connect_to(const SocketAddress& one, const SocketAddress& other) {
  return concat("connect to ", one.to_string(), ", ", other.to_string());
}

// To the end.
Status run(const std::vector<ConnectRace::Target>& targets, WayMemory& memory) {
  ConnectRace race(targets, WhenRefused::kTryAgain, memory);
  for (const Deadline deadline = soon(); !deadline.expired();) {
    const auto socket = race.advance();
    if (!socket.is_ok() || *socket) return socket.status();
    std::vector<pollfd> entries;
    const Deadline next = race.wait_on(entries, deadline);
    ::poll(entries.data(), entries.size(), next.poll_ms());
  }
  return race.trouble();
}

TEST(ConnectFirst, WhatWasSilentIsTriedLastNextTime) {
  WayMemory memory;
  const DeadAddress one(own_host(2));
  const auto listener = must(listen_tcp(at(own_host(4), 0), 4));
  const SocketAddress dead = one.address(), there = must(local_address(listener.get()));
  EXPECT_EQ(in_turn(dead, there, memory), connect_to(dead, there));
  EXPECT_OK(connect_first({dead, there}, WhenRefused::kTryAgain, soon(), nullptr, memory));
  EXPECT_EQ(in_turn(dead, there, memory), connect_to(there, dead));
  EXPECT_EQ(in_turn(dead.with_port(1), there.with_port(2), memory), connect_to(there.with_port(2), dead.with_port(1)))
      << "the port does not matter";
  EXPECT_EQ(connect_first({dead}, WhenRefused::kTryAgain, Deadline::after(milliseconds(20)), nullptr, memory).status().detail(),
            "no answer until the deadline, last: no answer")
      << "an only address is tried whatever is known of it";
}

TEST(ConnectFirst, WhatAnswersInTheEndIsTriedInItsTurnAgain) {
  WayMemory memory;
  auto one = std::make_unique<DeadAddress>(own_host(2));
  auto listener = must(listen_tcp(at(own_host(4), 0), 4));
  const SocketAddress was_dead = one->address(), there = must(local_address(listener.get()));
  EXPECT_OK(connect_first({was_dead, there}, WhenRefused::kTryAgain, soon(), nullptr, memory));
  EXPECT_EQ(in_turn(was_dead, there, memory), connect_to(there, was_dead));
  one.reset();
  listener.reset();
  const auto back = must(listen_tcp(was_dead, 4));
  EXPECT_OK(connect_first({was_dead, there}, WhenRefused::kTryAgain, soon(), nullptr, memory));
  EXPECT_EQ(in_turn(was_dead, there, memory), connect_to(was_dead, there));
}

TEST(ConnectFirst, SilenceBehindOneDeviceSaysNothingOfAnother) {
  WayMemory memory;
  const DeadAddress one(own_host(2));
  const auto listener = must(listen_tcp(at(own_host(4), 0), 4));
  const SocketAddress dead = one.address(), there = must(local_address(listener.get()));
  const Status status = run({{.address = dead, .device = "lo"}, {.address = there, .device = "lo"}}, memory);
  if (status.code() == Code::kSystem) GTEST_SKIP() << status.to_string();
  ASSERT_OK(status);
  EXPECT_EQ(in_turn({{.address = dead, .device = "lo"}, {.address = there}}, memory), connect_to(there, dead));
  EXPECT_EQ(in_turn(dead, there, memory), connect_to(dead, there));
}

TEST(ConnectFirst, WhoDidNotHaveItsTimeWasNotSilent) {
  WayMemory memory;
  const DeadAddress one(own_host(2));
  const SocketAddress dead = one.address(), late = at(own_host(3), dead.port());
  ConnectRace race({{late}, {dead}}, WhenRefused::kTryAgain, memory);
  const TimePoint begin = Clock::steady().now();
  ASSERT_OK(race.advance());  // refused
  ASSERT_OK(race.advance());  // so that the other has its turn
  const auto listener = must(listen_tcp(late, 4));
  ASSERT_TRUE(wait_until([&] { return must(race.advance()).get() >= 0; }));
  if (Clock::steady().now() - begin >= kConnectDelay) GTEST_SKIP() << "this machine is too busy";
  EXPECT_EQ(in_turn(dead, late, memory), connect_to(dead, late));
}

TEST(ConnectFirst, TheNextIsTriedAtOnceWhenOneFails) {
  const auto listener = must(listen_tcp(at(own_host(4), 0), 4));
  const auto there = must(local_address(listener.get()));
  std::vector<SocketAddress> all;
  for (int i = 0; i < 20; ++i) all.push_back(at(own_host(10 + i), there.port()));
  all.push_back(there);
  EXPECT_OK(connect_first(all, WhenRefused::kGiveUp, Deadline::after(10 * kConnectDelay)));
}

TEST(ConnectFirst, OneThatRefusedIsTriedAgainWhileAnotherIsSilent) {
  const DeadAddress dead(own_host(2));
  const SocketAddress late = at(own_host(3), dead.address().port());
  auto connecting = std::async(std::launch::async, [&] {
    return connect_first({late, dead.address()}, WhenRefused::kTryAgain, Deadline::after(milliseconds(2900))).status();
  });
  EXPECT_EQ(connecting.wait_for(milliseconds(400)), std::future_status::timeout);
  const auto listener = must(listen_tcp(late, 4));
  EXPECT_OK(connecting.get());
}

TEST(ConnectFirst, WithoutPatienceAllThatRefuseAreNamed) {
  const auto listener = must(listen_tcp(at(own_host(4), 0), 4));  // keeps the port
  const uint16_t port = must(local_address(listener.get())).port();
  const Status status = connect_first({at(own_host(5), port), at(own_host(6), port)}, WhenRefused::kGiveUp, soon()).status();
  EXPECT_EQ(status.code(), Code::kPeerGone);
  EXPECT_EQ(status.native(), ECONNREFUSED);
  for (const int number : {5, 6})
    EXPECT_NE(status.detail().find(concat(own_host(number), ':', port, ": Connection refused")), std::string::npos)
        << status.detail();
}

TEST(ConnectFirst, KeepsItsDeadlineAndItsStopFlagWithDeadAddresses) {
  const DeadAddress one(own_host(2)), other(own_host(3));
  const std::vector<SocketAddress> both = {one.address(), other.address()};
  const Status late = connect_first(both, WhenRefused::kTryAgain, Deadline::after(milliseconds(300))).status();
  EXPECT_EQ(late.code(), Code::kTimeout) << late.to_string();
  EXPECT_NE(late.detail().find("no answer"), std::string::npos) << late.to_string();
  std::atomic<bool> stop = false;
  auto stopped =
      std::async(std::launch::async, [&] { return connect_first(both, WhenRefused::kTryAgain, soon(), &stop).status(); });
  EXPECT_EQ(stopped.wait_for(milliseconds(20)), std::future_status::timeout);
  const TimePoint begin = Clock::steady().now();
  stop = true;
  EXPECT_EQ(stopped.get().code(), Code::kCancelled);
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
}

TEST(ConnectFirst, ALocalPortIsWaitedFor) {
  const std::string missing = in_own_network([] {
    leave_ports(2);  // one is free for one address: the other is that of the listener
    const auto listener = must(listen_tcp(SocketAddress::loopback(0), 4));
    const std::vector<SocketAddress> there = {must(local_address(listener.get()))};
    const auto first = must(connect_first(there, WhenRefused::kTryAgain, soon()));
    const Status late = connect_first(there, WhenRefused::kTryAgain, Deadline::after(milliseconds(50))).status();
    EXPECT_EQ(late.code(), Code::kExhausted) << "at the deadline: " << late.to_string();
    auto second = std::async(std::launch::async, [&] { return connect_first(there, WhenRefused::kTryAgain, soon()).status(); });
    EXPECT_EQ(second.wait_for(milliseconds(50)), std::future_status::timeout);
    leave_ports(16);
    EXPECT_OK(second.get());
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(ConnectFirst, NoAddressIsAnError) {
  EXPECT_FALSE(connect_first({}, WhenRefused::kTryAgain, soon()).is_ok());
}

TEST(Hosts, SeveralAreSeparatedByCommas) {
  EXPECT_EQ(must(split_hosts("10.0.0.1,fd00::1,host-7")), (std::vector<std::string>{"10.0.0.1", "fd00::1", "host-7"}));
  EXPECT_EQ(texts(must(resolve("10.0.0.1,no-such-host.invalid,fd00::1", 1, soon(), nullptr))), "10.0.0.1 fd00::1");
  EXPECT_EQ(resolve("no-such-host.invalid,other.invalid", 1, soon(), nullptr).status().code(), Code::kNotFound);
}

TEST(Hosts, WhatIsNoListOfHostsIsRefused) {
  std::string nine = "a";
  for (int i = 0; i < 8; ++i) nine += ",a";
  for (const std::string& hosts :
       {std::string(), std::string("a,"), std::string(",a"), std::string("a,,b"), std::string(256, 'x'), nine})
    EXPECT_EQ(split_hosts(hosts).status().code(), Code::kInvalidArgument) << hosts;
}

TEST(SocketAddress, LoopbackIsKnownInAllItsForms) {
  for (const char* host : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"}) EXPECT_TRUE(at(host).is_loopback()) << host;
  for (const char* host : {"10.0.0.1", "128.0.0.1", "::", "fe80::1", "::ffff:10.0.0.1"})
    EXPECT_FALSE(at(host).is_loopback()) << host;
}

}  // namespace
}  // namespace tcpx::testing
