// Two ends whose NICs differ in number, order and reach, and peers that say what cannot be.
#include "transfer/channel_pairing.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/support/bootstrap_ends.h"
#include "tests/support/expect_log.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "transfer/peer_messages.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using Paired = Result<std::vector<PairedChannel>>;

constexpr const char* kLeftOut = "is left out: no way ";

class ChannelPairing : public ::testing::Test {
 protected:
  explicit ChannelPairing(bool steers = false) {
    auto made = std::make_unique<FakeNetPlugin>(FakeNetPlugin::Options{.steers = steers, .devices = 4});
    fake_ = made.get();
    plugin_ = std::make_unique<LockedNetPlugin>(std::move(made));
  }

  Paired connect(const ChannelDevices& from, const ChannelDevices& to, Deadline deadline) {
    auto paired = connect_to(from, nics(to), {.deadline = deadline, .peer = &ends_.a});
    if (!paired.is_ok()) ends_.a.leave(paired.status());
    return paired;
  }
  Paired connect_to(const ChannelDevices& from, std::vector<std::string> peer_nics, const HandshakeWait& wait) {
    ConnectingHalf half{.peer_nics = std::move(peer_nics), .handles = {}};
    TCPX_ASSIGN_OR_RETURN(half.handles, receive_handles(*wait.peer, from.size(), wait.deadline));
    TCPX_ASSIGN_OR_RETURN(auto paired, pair_channels(*plugin_, from, std::move(half), {}, {}, wait));
    return std::move(paired.sending);
  }
  Paired accept(const ChannelDevices& at, Deadline deadline = soon()) {
    AcceptingHalf half{must(listen_all(*plugin_, at))};
    TCPX_RETURN_IF_ERROR(ends_.b.send_handles(handles_of(half.listeners), deadline));
    TCPX_ASSIGN_OR_RETURN(auto paired, pair_channels(*plugin_, at, {}, std::move(half), {.accepts_first = true},
                                                     {.deadline = deadline, .peer = &ends_.b}));
    return std::move(paired.receiving);
  }
  /// Both ends, whose comms are then in `sent_` and `received_`.
  void pair(const ChannelDevices& from, const ChannelDevices& to, Deadline deadline = soon()) {
    auto other = in_thread([&] { return accept(to); });
    sent_.emplace(connect(from, to, deadline));
    received_.emplace(other.get());
  }
  /// Pairs of devices that stand.
  std::vector<std::pair<int, int>> standing() {
    const auto sent = must(std::move(*sent_)), received = must(std::move(*received_));
    EXPECT_EQ(sent.size(), received.size());
    std::vector<std::pair<int, int>> all;
    for (size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
      all.emplace_back(sent[i].device, received[i].device);
      EXPECT_EQ(sent[i].nic, concat("fake", sent[i].device));
      EXPECT_EQ(received[i].nic, concat("fake", received[i].device));
      EXPECT_NE(received[i].device_handle, nullptr);
    }
    EXPECT_EQ(fake_->open_comms(), 2 * sent.size()) << "what does not stand is closed";
    return all;
  }
  std::vector<std::string> nics(const ChannelDevices& devices) { return must(nics_of(*plugin_, devices)); }

  FakeNetPlugin* fake_;
  std::unique_ptr<NetPlugin> plugin_;
  Ends ends_ = two_ends();
  std::optional<Paired> sent_, received_;
};
using Pairs = std::vector<std::pair<int, int>>;

TEST_F(ChannelPairing, ThoseOfOneNumberComeFirst) {
  pair({0, 1, 2, 3}, {0, 1, 2, 3});
  EXPECT_EQ(standing(), Pairs({{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
}

TEST_F(ChannelPairing, AnotherOrderIsFound) {
  fake_->way = [](int from, int to) -> Result<bool> {
    if (from + to == 3) return true;
    return Status(Code::kPeerGone, "connect", "unreachable");
  };
  pair({0, 1, 2, 3}, {0, 1, 2, 3});
  EXPECT_EQ(standing(), Pairs({{3, 0}, {2, 1}, {1, 2}, {0, 3}}));
}

TEST_F(ChannelPairing, AnotherOrderIsFoundWhereWrongPairsAreSilent) {
  fake_->way = [](int from, int to) { return from + to == 1; };
  const TimePoint begin = Clock::steady().now();
  pair({0, 1}, {0, 1}, Deadline::after(milliseconds(1200)));
  EXPECT_EQ(standing(), Pairs({{1, 0}, {0, 1}}));
  EXPECT_LT(Clock::steady().now() - begin, milliseconds(1200)) << "a share of the time";
}

TEST_F(ChannelPairing, AChannelWithoutAWayIsLeftOutWithALineAtEachEnd) {
  allow_log(kLeftOut);
  fake_->way = [](int from, int to) -> Result<bool> {
    if (from == 0 && to == 0) return true;
    return Status(Code::kPeerGone, "connect", concat("no route from ", from, " to ", to));
  };
  pair({0, 1}, {0, 1});
  EXPECT_EQ(standing(), Pairs({{0, 0}}));
  EXPECT_TRUE(
      logged("channel 1 is left out: no way to its fake1: from fake1: connect: no route from 1 to 1; "
             "from fake0: connect: no route from 0 to 1"));
  EXPECT_TRUE(
      logged("channel 1 is left out: no way from the peer to fake1: from fake1: connect: no route from 1 to 1; "
             "from fake0: connect: no route from 0 to 1"));
}

TEST_F(ChannelPairing, TwoOfOneEndMeetTheOneOfTheOther) {
  pair({0, 1}, {2, 2});
  EXPECT_EQ(standing(), Pairs({{0, 2}, {1, 2}}));
  pair({2, 2}, {0, 1});
  EXPECT_EQ(must(std::move(*sent_)).size(), 2u);
}

// A second channel over the same two NICs brings nothing.
TEST_F(ChannelPairing, APairOfNicsIsTriedOnce) {
  allow_log(kLeftOut);
  std::vector<std::pair<int, int>> tried;
  fake_->way = [&](int from, int to) -> Result<bool> {
    tried.emplace_back(from, to);
    if (from == 0) return true;
    return Status(Code::kPeerGone, "connect", "no route");
  };
  pair({0, 1}, {2, 2});
  EXPECT_EQ(standing(), Pairs({{0, 2}}));
  EXPECT_EQ(tried, Pairs({{0, 2}, {1, 2}}));
}

TEST_F(ChannelPairing, WhereNothingStandsTheErrorNamesEachPairAndWhy) {
  fake_->way = [](int from, int to) -> Result<bool> {
    return Status(Code::kPeerGone, "connect", concat("no route from ", from, " to ", to), Domain::kErrno, 113);
  };
  pair({0, 1}, {2, 3});
  for (const Status& status : {sent_->status(), received_->status()}) {
    EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
    for (const char* part :
         {"no way to its fake2: from fake0: connect: no route from 0 to 2 (errno 113); from fake1:", "no route from 1 to 2",
          "to its fake3: from fake1: connect: no route from 1 to 3", "no route from 0 to 3"})
      EXPECT_NE(status.detail().find(part), std::string::npos) << part << " in " << status.to_string();
  }
  EXPECT_EQ(fake_->open_comms(), 0u);
}

TEST_F(ChannelPairing, ASilentPairCostsAShareOfTheTime) {
  allow_log(kLeftOut);
  fake_->way = [](int from, int to) { return from == to && from != 2; };
  const TimePoint begin = Clock::steady().now();
  pair({0, 1, 2, 3}, {0, 1, 2, 3}, Deadline::after(milliseconds(2000)));
  EXPECT_EQ(standing(), Pairs({{0, 0}, {1, 1}, {3, 3}}));
  EXPECT_LT(Clock::steady().now() - begin, milliseconds(1900));
}

TEST_F(ChannelPairing, ANetworkThatIsAwayForAMomentIsWaitedFor) {
  const Deadline away = Deadline::after(milliseconds(1200));
  fake_->way = [&](int from, int to) { return from == to && away.expired(); };
  pair({0, 1}, {0, 1}, Deadline::after(milliseconds(1600)));
  EXPECT_EQ(standing(), Pairs({{0, 0}, {1, 1}}));
}

TEST_F(ChannelPairing, DirectionsGoInTurnWhereAnEndWantsIt) {
  for (const bool in_turn : {true, false}) {
    const uint64_t before = fake_->calls(testing::Call::kConnect);
    const auto listeners = must(listen_all(*plugin_, ChannelDevices{0}));
    // Nobody comes to this end, so that its own connect is not due.
    const auto paired = pair_channels(*plugin_, {0}, ConnectingHalf{.peer_nics = nics({0}), .handles = handles_of(listeners)},
                                      AcceptingHalf{must(listen_all(*plugin_, ChannelDevices{1}))},
                                      {.accepts_first = true, .in_turn = in_turn},
                                      {.deadline = Deadline::after(milliseconds(50)), .peer = &ends_.a});
    EXPECT_FALSE(paired.is_ok());
    EXPECT_EQ(fake_->calls(testing::Call::kConnect) > before, !in_turn);
  }
}

TEST_F(ChannelPairing, AnAcceptThatFailsLeavesItsChannelOutAtBothEnds) {
  allow_log(kLeftOut);
  fake_->fail_call(Call::kAccept, 1, plugin_refused("accept", "not this one"), 1);
  pair({0, 1}, {0, 1});
  EXPECT_EQ(standing(), Pairs({{1, 1}}));
  EXPECT_TRUE(logged("channel 0 is left out: no way to its fake0: from fake0: the peer: at fake0: accept: not this one"));
  EXPECT_TRUE(logged("channel 0 is left out: no way from the peer to fake0: at fake0: accept: not this one"));
}

class SteeredPairing : public ChannelPairing {
 protected:
  SteeredPairing() : ChannelPairing(true) {}
};

TEST_F(SteeredPairing, AllMustStandAsGiven) {
  std::set<std::pair<int, int>> tried;
  fake_->way = [&](int from, int to) -> Result<bool> {
    tried.emplace(from, to);
    if (from == 0) return true;
    return Status(Code::kPeerGone, "connect", "no route");
  };
  pair({0, 1}, {0, 1});
  EXPECT_EQ(sent_->status().code(), Code::kPeerGone);
  EXPECT_EQ(received_->status().code(), Code::kPeerGone);
  EXPECT_EQ(tried, (std::set<std::pair<int, int>>{{0, 0}, {1, 1}}));
  EXPECT_EQ(fake_->open_comms(), 0u);
}

/// What the peer says of the first round of two channels, of which the first is connected.
class LyingPeer : public ChannelPairing {
 protected:
  static void expect_refused(const Status& status, const std::string& text) {
    EXPECT_EQ(status.code(), Code::kProtocol) << status.to_string();
    EXPECT_NE(status.detail().find(text), std::string::npos) << status.to_string();
  }
};

TEST_F(LyingPeer, CannotNameChannelsToTheAcceptorThatAreNotThere) {
  for (const auto& [said, text] : std::vector<std::pair<Parameters, std::string>>{
           {{{"made", "4"}, {"again", "0"}}, "the peer's \"made\" is \"4\""},
           {{{"made", "-1"}, {"again", "0"}}, "the peer's \"made\" is \"-1\""},
           {{{"made", "4294967297"}, {"again", "0"}}, "the peer's \"made\" is \"4294967297\""},
           {{{"again", "0"}}, "the peer's \"made\" is \"\""},
           {{{"made", "0"}}, "the peer's \"again\" is \"\""},
           {{{"made", "1x"}, {"again", "0"}}, "the peer's \"made\" is \"1x\""},
           {{{"made", "0"}, {"again", "5"}}, "the peer's \"again\" is \"5\""}}) {
    ends_ = two_ends();
    auto other = in_thread([&] { return accept({0, 1}).status(); });
    ASSERT_TRUE(ends_.a.receive_handles(2, soon()).is_ok());
    ASSERT_TRUE(ends_.a.send_parameters(said, soon()).is_ok());
    expect_refused(other.get(), text);
  }
  EXPECT_EQ(fake_->open_comms(), 0u);
}

TEST_F(LyingPeer, CannotHaveAChannelBothMadeAndTriedAgain) {
  auto other = in_thread([&] { return accept({0, 1}).status(); });
  const auto handles = must(ends_.a.receive_handles(2, soon()));
  const Comm comm = must(connect_comm(*plugin_, 0, handles[0], {.deadline = soon()}));
  ASSERT_TRUE(ends_.a.send_parameters({{"made", "1"}, {"again", "1"}}, soon()).is_ok());
  expect_refused(other.get(), "the peer's \"again\" is \"1\"");
}

TEST_F(LyingPeer, CannotTryForEver) {
  auto other = in_thread([&] { return accept({0}).status(); });
  for (size_t round = 0; round < kMaxChannels + 1; ++round) {
    ASSERT_TRUE(ends_.a.receive_handles(1, soon()).is_ok()) << round;
    ASSERT_TRUE(ends_.a.send_parameters({{"made", "0"}, {"again", "1"}}, soon()).is_ok());
    ASSERT_TRUE(ends_.a.receive_parameters(soon()).is_ok());
  }
  expect_refused(other.get(), "again and again");
}

TEST_F(LyingPeer, ThatHasNotConnectedIsWaitedForNoLongerThanTheDeadline) {
  auto other = in_thread([&] { return accept({0, 1}, Deadline::after(milliseconds(200))).status(); });
  ASSERT_TRUE(ends_.a.receive_handles(2, soon()).is_ok());
  ASSERT_TRUE(ends_.a.send_parameters({{"made", "3"}, {"again", "0"}}, soon()).is_ok());
  EXPECT_EQ(other.get().code(), Code::kTimeout);
}

TEST_F(LyingPeer, CannotNameChannelsToTheConnectorThatAreNotThere) {
  fake_->way = [](int from, int) -> Result<bool> {
    if (from == 0) return true;
    return Status(Code::kPeerGone, "connect", "no route");
  };
  for (const char* made : {"4", "7", "", "-1"}) {
    ends_ = two_ends();
    auto other = in_thread([&] { return connect({0, 1}, {2, 2}, soon()).status(); });
    const Listener listeners[] = {must(Listener::create(*plugin_, 2)), must(Listener::create(*plugin_, 2))};
    ASSERT_TRUE(ends_.b.send_handles(std::vector{listeners[0].handle(), listeners[1].handle()}, soon()).is_ok());
    EXPECT_EQ(must(ends_.b.receive_parameters(soon())).at("made"), "1");
    ASSERT_TRUE(ends_.b.send_parameters({{"accepted", made}}, soon()).is_ok());
    expect_refused(other.get(), concat("the peer's \"accepted\" is \"", made, '"'));
  }
}

TEST_F(LyingPeer, ThatSendsTooFewHandlesIsRefused) {
  auto other = in_thread([&] { return connect({0, 1}, {2, 2}, soon()).status(); });
  ASSERT_TRUE(ends_.b.send_handles(some_handles(1), soon()).is_ok());
  expect_refused(other.get(), "1 handles for 2 channels");
}

TEST_F(LyingPeer, CannotWriteWhatItLikesIntoTheLog) {
  allow_log(kLeftOut);
  auto other = in_thread([&] { return accept({0, 1}).status(); });
  const auto handles = must(ends_.a.receive_handles(2, soon()));
  const Comm comm = must(connect_comm(*plugin_, 0, handles[0], {.deadline = soon()}));
  ASSERT_TRUE(ends_.a.send_parameters({{"made", "1"}, {"again", "0"}, {"why 1", concat("a\nb", std::string(1000, 'x'))}}, soon())
                  .is_ok());
  EXPECT_TRUE(other.get().is_ok());
  EXPECT_TRUE(logged("from the peer to fake1: a"));
  EXPECT_FALSE(logged(std::string(400, 'x'))) << "cut";
  EXPECT_FALSE(logged("a\nb"));
}

}  // namespace
}  // namespace tcpx::testing
