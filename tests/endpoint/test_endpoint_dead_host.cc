// The host at the other end is gone without a word: in a network namespace of its own, whose network goes away.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/own_network.h"

namespace tcpx::testing {
namespace {

// On one host the control connection would not notice.
EndpointConfig over_tcp() {
  EndpointConfig config = loopback_config();
  config.same_host = false;
  return config;
}

EndpointConfig impatient() {
  EndpointConfig config = over_tcp();
  config.peer_timeout = std::chrono::milliseconds(3300);
  return config;
}

TEST(EndpointDeadHost, EverythingEndsSoon) {
  allow_broken_connections();
  const std::string skipped = in_own_network([] {
    auto a = make_endpoint(impatient()), b = make_endpoint(impatient());
    const auto [there, here] = connect_pair(*a, *b);
    const auto [idle, idle_there] = connect_pair(*a, *b);
    Memory memory(*a, 4 << 20), target(*b, 4 << 20);
    const RemoteRange remote{b->advertise(here, target.whole()).value(), 0};
    const LocalRange large = memory.whole(), small = memory.range(0, 512);
    std::vector<OperationId> operations = {a->recv_async(there, {&small, 1}).value(), a->recv_async(idle, {&large, 1}).value(),
                                           a->send_async(there, {&large, 1}).value()};
    const TimePoint cut_at = Clock::steady().now();
    ASSERT_EQ(set_loopback_address(false), 0);
    for (int i = 0; i < 8; ++i) {
      operations.push_back(a->write_async(there, {&large, 1}, {&remote, 1}).value());
      operations.push_back(a->read_async(there, {&small, 1}, {&remote, 1}).value());
    }
    for (const OperationId id : operations) {
      const Status status = a->wait(id, kCallTime);
      EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
    }
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::steady().now() - cut_at);
    std::printf("all operations ended %d ms after the network had gone\n", static_cast<int>(took.count()));
    EXPECT_LT(took, std::chrono::seconds(8));  // 4 are promised; the machine may be busy
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(EndpointDeadHost, ASilentWayIsWaitedForAsLongAsIsAsked) {
  const std::string skipped = in_own_network([] {
    auto a = make_endpoint(over_tcp()), b = make_endpoint(over_tcp());
    const auto [there, here] = connect_pair(*a, *b);
    const auto [idle, idle_there] = connect_pair(*a, *b);
    Memory memory(*a, 4 << 20), room(*a, 512), target(*b, 4 << 20);
    const RemoteRange remote{b->advertise(here, target.whole()).value(), 0};
    const LocalRange large = memory.whole(), small = room.whole();
    ASSERT_EQ(set_loopback_address(false), 0);
    const auto patient = a->write_async(there, {&large, 1}, {&remote, 1}).value();
    const Status hasty = a->recv(idle, small, {.timeout = std::chrono::milliseconds(500)});
    EXPECT_EQ(hasty.code(), Code::kTimeout) << hasty.to_string();
    std::this_thread::sleep_for(std::chrono::seconds(4));  // longer than the shortest peer timeout
    ASSERT_EQ(set_loopback_address(true), 0);
    const Status status = a->wait(patient, kCallTime);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_TRUE(moves(*a, there, *b, here, 1000));
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

// Lost data is sent again with growing pauses, so the next attempt may come as long after an outage as that has lasted. The second
// outage finds connections that have survived one, and meets the pauses at another point.
TEST(EndpointDeadHost, B13_AnOutageOfTwoSecondsIsSurvived) {
  const std::string skipped = in_own_network([] {
    auto a = make_endpoint(over_tcp()), b = make_endpoint(over_tcp());
    const auto [there, here] = connect_pair(*a, *b);
    const auto [idle, idle_there] = connect_pair(*a, *b);
    Memory memory(*a, 4 << 20), target(*b, 16 * (4 << 20));
    const auto slot = b->advertise(here, target.whole()).value();
    const LocalRange large = memory.whole(), small = memory.range(0, 512);
    for (int round = 0; round < 2; ++round) {
      std::vector<OperationId> operations;
      // Each to a place of its own: writes under way together are in no order.
      const auto start = [&, conn = there](const LocalRange& range) {
        const RemoteRange remote{slot, operations.size() * large.bytes};
        operations.push_back(a->write_async(conn, {&range, 1}, {&remote, 1}).value());
      };
      for (int i = 0; i < 8; ++i) start(i % 2 == 0 ? large : small);
      ASSERT_EQ(set_loopback_address(false), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(300 * round));
      for (int i = 0; i < 8; ++i) start(i % 2 == 0 ? large : small);
      std::this_thread::sleep_for(std::chrono::milliseconds(2000 - 300 * round));
      ASSERT_EQ(set_loopback_address(true), 0);
      for (const OperationId id : operations) {
        const Status status = a->wait(id, kCallTime);
        EXPECT_TRUE(status.is_ok()) << "round " << round << ": " << status.to_string();
      }
      EXPECT_TRUE(moves(*a, idle, *b, idle_there, 1000)) << "the one without traffic, round " << round;
      if (::testing::Test::HasFailure()) return;
    }
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

}  // namespace
}  // namespace tcpx::testing
