// When the host at the other end is taken for dead: only after the kernel has asked and nobody answered.
#include "wire/host_signs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/own_network.h"
#include "tests/support/stream_pair.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::wait_until;

constexpr milliseconds kSilence{3300};
constexpr milliseconds kShort{3300}, kLong{3301};

TEST(HostSigns, SilenceAloneProvesNothing) {
  EXPECT_FALSE(is_silent({}, kSilence));
  EXPECT_FALSE(is_silent({.since_ack = milliseconds(1 << 30), .since_data = milliseconds(1 << 30)}, kSilence));
  EXPECT_FALSE(is_silent({.since_ack = kLong, .since_data = kLong, .probes = 2}, kSilence));
  EXPECT_FALSE(is_silent({.since_ack = kLong, .since_data = kLong, .retransmits = 3}, kSilence));
}

TEST(HostSigns, UnansweredQuestionsAndSilenceDo) {
  EXPECT_TRUE(is_silent({.since_ack = kLong, .since_data = kLong, .probes = 3}, kSilence));
  EXPECT_TRUE(is_silent({.since_ack = kLong, .since_data = kLong, .retransmits = 4}, kSilence));
  EXPECT_TRUE(is_silent({.since_ack = kLong, .since_data = kLong, .probes = 1, .retransmits = 3}, kSilence));
  EXPECT_FALSE(is_silent({.since_ack = kShort, .since_data = kLong, .probes = 3}, kSilence));
  EXPECT_FALSE(is_silent({.since_ack = kLong, .since_data = kShort, .retransmits = 9}, kSilence));
}

TEST(HostSigns, AShutWindowNeedsMore) {
  const auto shut = [](uint32_t probes, uint32_t retransmits) {
    return is_silent({.since_ack = kLong, .since_data = kLong, .probes = probes, .retransmits = retransmits, .window_shut = true},
                     kSilence);
  };
  EXPECT_FALSE(shut(0, 20));
  EXPECT_FALSE(shut(3, 20));
  EXPECT_TRUE(shut(4, 0));
}

TEST(HostSigns, WhatIsNoTcpSocketSaysNothing) {
  const testing::Sockets sockets = testing::unix_pair();
  EXPECT_FALSE(host_signs(sockets.a.get()).has_value());
  EXPECT_FALSE(host_signs(-1).has_value());
}

struct Connection {
  ControlStream stream;  // the peer's process does nothing at all
  UniqueFd peer;

  Connection() {
    testing::Sockets sockets = testing::tcp_pair();
    stream.attach(std::move(sockets.a));
    peer = std::move(sockets.b);
  }
  /// Sends until the peer's window is shut.
  bool shut_window() {
    const std::vector<std::byte> payload(512 * 1024);
    return wait_until([&] {
      if (stream.backlog() < payload.size()) stream.send(testing::RawFrame{testing::make_header(FrameType::kSend), payload});
      stream.flush();
      const auto signs = host_signs(stream.fd());
      return signs && signs->window_shut;
    });
  }
};

TEST(HostSigns, ALivingHostIsNeverTakenForDead) {
  Connection idle, full;
  ASSERT_TRUE(full.shut_window());
  EXPECT_FALSE(wait_until(
      [&] {
        idle.stream.check_alive(kSilence);
        full.stream.check_alive(kSilence);
        return !idle.stream.status().is_ok() || !full.stream.status().is_ok();
      },
      kSilence + std::chrono::seconds(1)))
      << idle.stream.status().to_string() << " " << full.stream.status().to_string();
  // It was asked, and answered.
  const auto signs = host_signs(idle.stream.fd());
  ASSERT_TRUE(signs.has_value());
  EXPECT_LT(signs->since_ack, std::chrono::seconds(2));
}

// In a namespace of its own, whose network goes away.
TEST(HostSigns, AHostThatNoLongerAnswersIsDead) {
  const std::string skipped = testing::in_own_network([] {
    Connection idle, busy;
    busy.stream.send(testing::RawFrame{testing::make_header(FrameType::kGo)});
    const TimePoint cut_at = Clock::steady().now();
    ASSERT_EQ(testing::set_loopback(false), 0);
    busy.stream.flush();
    TimePoint idle_at, busy_at;
    const auto look = [](ControlStream& stream, TimePoint& at) {
      stream.check_alive(kSilence);
      if (!stream.status().is_ok() && at == TimePoint()) at = Clock::steady().now();
      return !stream.status().is_ok();
    };
    EXPECT_TRUE(wait_until([&] {
      const bool idle_dead = look(idle.stream, idle_at), busy_dead = look(busy.stream, busy_at);
      return idle_dead && busy_dead;
    }));
    for (const TimePoint at : {idle_at, busy_at}) {
      EXPECT_GE(at - cut_at, std::chrono::seconds(1));
      EXPECT_LT(at - cut_at, std::chrono::seconds(8));
    }
    for (const ControlStream* stream : {&idle.stream, &busy.stream}) {
      EXPECT_EQ(stream->status().code(), Code::kPeerGone);
      EXPECT_EQ(stream->status().operation(), "check the peer") << stream->status().to_string();
    }
    ::testing::Test::RecordProperty("idle_ms",
                                    static_cast<int>(std::chrono::duration_cast<milliseconds>(idle_at - cut_at).count()));
    ::testing::Test::RecordProperty("busy_ms",
                                    static_cast<int>(std::chrono::duration_cast<milliseconds>(busy_at - cut_at).count()));
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

}  // namespace
}  // namespace tcpx
