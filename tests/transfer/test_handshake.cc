#include "transfer/handshake.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/bootstrap_ends.h"
#include "tests/support/fake_net_plugin.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;

class HandshakeTest : public ::testing::Test {
 protected:
  HandshakeWait wait(Deadline deadline = soon()) { return {deadline, &ends_.a}; }
  Listener listener() { return must(Listener::create(plugin_, 0)); }
  /// A connect to each of three listeners.
  Result<std::vector<CommAnswer>> connect_three(HandshakePatience patience = {.for_first = soon()}) {
    for (int i = 0; i < 3; ++i) {
      listeners_.push_back(listener());
      handles_.push_back(listeners_.back().handle());
    }
    return connect_all(plugin_, std::array<int, 3>{}, handles_, wait(), patience);
  }

  FakeNetPlugin plugin_;
  DeviceHandleStorage device_handle_;
  Ends ends_ = two_ends();
  std::vector<Listener> listeners_;
  std::vector<Handle> handles_;
};

TEST_F(HandshakeTest, NotYetIsAskedAgain) {
  Listener end = listener();
  plugin_.answer_not_yet(Call::kConnect, 3);
  plugin_.answer_not_yet(Call::kAccept, 3);
  auto sender = must(connect_comm(plugin_, 0, end.handle(), wait()));
  auto receiver = must(end.accept(device_handle_, wait()));
  EXPECT_EQ(sender.direction(), Direction::kSend);
  EXPECT_EQ(receiver.direction(), Direction::kRecv);
  EXPECT_EQ(plugin_.calls(Call::kConnect), 4u);
  EXPECT_EQ(plugin_.calls(Call::kAccept), 4u);
  EXPECT_TRUE(end.close().is_ok());
  EXPECT_TRUE(end.close().is_ok()) << "once more does nothing";
  EXPECT_EQ(plugin_.calls(Call::kClose), 1u);
  EXPECT_TRUE(plugin_.misuse().empty());
}

TEST_F(HandshakeTest, OneThatIsLateHoldsUpNoneOfTheOthers) {
  plugin_.answer_not_yet(Call::kConnect, 4);
  plugin_.answer_not_yet(Call::kAccept, 4);
  const auto senders = must(connect_three());
  EXPECT_EQ(plugin_.calls(Call::kConnect), 7u) << "all three once, one again, then the two that are left";
  AcceptingComms receivers(std::move(listeners_), false);
  while (!receivers.all_answered()) ASSERT_OK(receivers.advance());
  EXPECT_EQ(plugin_.open_comms(), 6u);
  EXPECT_TRUE(plugin_.misuse().empty()) << "one accept per listener (3)";
}

TEST_F(HandshakeTest, WhenOneFailsTheOthersStandUnlessAllMust) {
  plugin_.fail_call(Call::kConnect, 2, plugin_refused("connect", "no"), 1);
  {
    const auto answers = must(connect_three());
    ASSERT_EQ(answers.size(), 3u);
    EXPECT_TRUE(answers[0].is_ok() && answers[2].is_ok());
    EXPECT_EQ(answers[1].status().code(), Code::kPlugin);
  }
  listeners_.clear(), handles_.clear();
  plugin_.fail_call(Call::kConnect, 3, plugin_refused("connect", "no"));
  EXPECT_EQ(connect_three({.for_first = soon(), .all_or_none = true}).status().code(), Code::kPlugin);
  EXPECT_EQ(plugin_.open_comms(), 0u);
}

TEST_F(HandshakeTest, AShortageOfThisProcessIsNoMatterOfOneWay) {
  plugin_.fail_call(Call::kConnect, 2, Status(Code::kExhausted, "connect", "no descriptors"), 1);
  EXPECT_EQ(connect_three().status().code(), Code::kExhausted);
  EXPECT_EQ(plugin_.open_comms(), 0u);
}

TEST_F(HandshakeTest, OneThatNeverAnswersHasAShareOfTheTime) {
  const TimePoint begin = Clock::steady().now();
  FakeNetPlugin plugin({.devices = 2});
  std::vector<Listener> listeners;
  std::vector<Handle> handles;
  for (const int dev : {0, 1}) {
    listeners.push_back(must(Listener::create(plugin, dev)));
    handles.push_back(listeners.back().handle());
  }
  const auto connect = [&](HandshakePatience patience) {
    return connect_all(plugin, std::array{0, 1}, handles, wait(), patience);
  };
  plugin.way = [](int, int) { return false; };
  for (const CommAnswer& answer : must(connect({.for_first = Deadline::after(milliseconds(20))})))
    EXPECT_EQ(answer.status().code(), Code::kTimeout);
  plugin.way = [](int from, int) { return from == 0; };
  const auto answers = must(connect({.for_first = soon(), .for_others = milliseconds(20)}));
  EXPECT_TRUE(answers[0].is_ok());
  EXPECT_EQ(answers[1].status().code(), Code::kTimeout);
  EXPECT_LT(Clock::steady().now() - begin, std::chrono::seconds(5)) << "long before the deadline";
}

TEST_F(HandshakeTest, Trap01_ConnectLeavesTheCallersHandleAlone) {
  Listener end = listener();
  const Handle pristine = end.handle();
  plugin_.answer_not_yet(Call::kConnect, 1);  // the fake writes into the given handle
  ASSERT_TRUE(connect_comm(plugin_, 0, end.handle(), wait()).is_ok());
  EXPECT_EQ(end.handle(), pristine);
}

TEST_F(HandshakeTest, DeadlineEndsAWaitForNobody) {
  Listener end = listener();
  const auto comm = end.accept(device_handle_, wait(Deadline::after(milliseconds(30))));
  ASSERT_FALSE(comm.is_ok());
  EXPECT_EQ(comm.status().code(), Code::kTimeout) << comm.status().to_string();
}

TEST_F(HandshakeTest, PeerThatDiesEndsTheWaitAtOnce) {
  Listener end = listener();
  { const BootstrapChannel gone = std::move(ends_.b); }
  const auto comm = end.accept(device_handle_, wait());
  ASSERT_FALSE(comm.is_ok());
  EXPECT_EQ(comm.status().code(), Code::kPeerGone) << comm.status().to_string();
}

TEST_F(HandshakeTest, PeerThatGivesUpEndsTheWaitWithItsReason) {
  const Handle handle = listener().handle();
  EXPECT_FALSE(ends_.b.finish(Status(Code::kCuda, "listen", "no GPU"), Deadline::after(milliseconds(1))).is_ok());
  plugin_.answer_not_yet(Call::kConnect, 1u << 30);
  const auto comm = connect_comm(plugin_, 0, handle, wait());
  ASSERT_FALSE(comm.is_ok());
  EXPECT_EQ(comm.status().to_string(), "TCPX_E_CUDA: peer reported: listen: no GPU");
}

TEST_F(HandshakeTest, StopFlagEndsTheWait) {
  Listener end = listener();
  const std::atomic<bool> stop = true;
  const auto comm = end.accept(device_handle_, {soon(), &ends_.a, &stop});
  ASSERT_FALSE(comm.is_ok());
  EXPECT_EQ(comm.status().detail(), "interrupted");
}

TEST_F(HandshakeTest, PluginErrorsArePassedOnAndNothingStaysOpen) {
  plugin_.fail_call(Call::kListen, 1, plugin_refused("listen", "no"));
  EXPECT_EQ(Listener::create(plugin_, 0).status().code(), Code::kPlugin);
  FakeNetPlugin other;
  {
    auto end = must(Listener::create(other, 0));
    other.fail_call(Call::kConnect, 1, plugin_refused("connect", "no"));
    other.fail_call(Call::kAccept, 1, plugin_refused("accept", "no"));
    EXPECT_EQ(connect_comm(other, 0, end.handle(), wait()).status().code(), Code::kPlugin);
    EXPECT_EQ(end.accept(device_handle_, wait()).status().code(), Code::kPlugin);
  }
  EXPECT_EQ(other.calls(Call::kClose), 1u) << "the listener closes itself";
  EXPECT_EQ(other.open_comms(), 0u);
}

}  // namespace
}  // namespace tcpx::testing
