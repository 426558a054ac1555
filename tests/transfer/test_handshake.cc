#include "transfer/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/support/fake_net_plugin.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Call;
using testing::FakeNetPlugin;

Deadline soon() {
  return Deadline::after(seconds(10));
}

class HandshakeTest : public ::testing::Test {
 protected:
  HandshakeTest() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    here_.emplace(UniqueFd(fds[0]), SocketAddress::loopback(1), "test");
    there_.emplace(UniqueFd(fds[1]), SocketAddress::loopback(1), "test");
  }
  HandshakeWait wait(Deadline deadline = soon()) { return {deadline, &*here_}; }
  Listener listener() {
    auto made = Listener::create(plugin_, 0);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return std::move(*made);
  }

  FakeNetPlugin plugin_;
  DeviceHandleStorage device_handle_;
  std::optional<BootstrapChannel> here_, there_;
};

TEST_F(HandshakeTest, NotYetIsAskedAgain) {
  Listener end = listener();
  plugin_.answer_not_yet(Call::kConnect, 3);
  plugin_.answer_not_yet(Call::kAccept, 3);
  auto sender = connect_comm(plugin_, 0, end.handle(), wait());
  ASSERT_TRUE(sender.is_ok()) << sender.status().to_string();
  auto receiver = end.accept(device_handle_, wait());
  ASSERT_TRUE(receiver.is_ok()) << receiver.status().to_string();
  EXPECT_EQ(sender->direction(), Direction::kSend);
  EXPECT_EQ(receiver->direction(), Direction::kRecv);
  EXPECT_EQ(plugin_.calls(Call::kConnect), 4u);
  EXPECT_EQ(plugin_.calls(Call::kAccept), 4u);
  EXPECT_TRUE(end.close().is_ok());
  EXPECT_TRUE(end.close().is_ok()) << "once more does nothing";
  EXPECT_EQ(plugin_.calls(Call::kClose), 1u);
  EXPECT_TRUE(plugin_.misuse().empty());
}

TEST_F(HandshakeTest, OneThatIsLateHoldsUpNoneOfTheOthers) {
  std::vector<Listener> listeners;
  std::vector<Handle> handles;
  std::vector<std::unique_ptr<DeviceHandleStorage>> storages;
  for (int i = 0; i < 3; ++i) {
    listeners.push_back(listener());
    handles.push_back(listeners.back().handle());
    storages.push_back(std::make_unique<DeviceHandleStorage>());
  }
  const std::array<int, 3> devices{0, 0, 0};
  plugin_.answer_not_yet(Call::kConnect, 4);
  plugin_.answer_not_yet(Call::kAccept, 4);
  const auto senders = connect_all(plugin_, devices, handles, wait());
  ASSERT_TRUE(senders.is_ok()) << senders.status().to_string();
  EXPECT_EQ(plugin_.calls(Call::kConnect), 7u) << "all three once, one again, then the two that are left";
  const auto receivers = accept_all(listeners, storages, wait());
  ASSERT_TRUE(receivers.is_ok()) << receivers.status().to_string();
  EXPECT_EQ(receivers->size(), 3u);
  EXPECT_EQ(plugin_.open_comms(), 6u);
  EXPECT_TRUE(plugin_.misuse().empty()) << "one accept per listener (3)";
}

TEST_F(HandshakeTest, WhenOneFailsTheOthersAreClosed) {
  std::vector<Handle> handles;
  std::vector<Listener> listeners;
  for (int i = 0; i < 3; ++i) {
    listeners.push_back(listener());
    handles.push_back(listeners.back().handle());
  }
  plugin_.fail_call(Call::kConnect, 3, testing::plugin_refused("connect", "no"));
  const std::array<int, 3> devices{0, 0, 0};
  EXPECT_EQ(connect_all(plugin_, devices, handles, wait()).status().code(), Code::kPlugin);
  EXPECT_EQ(plugin_.open_comms(), 0u);
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
  there_.reset();
  const auto comm = end.accept(device_handle_, wait());
  ASSERT_FALSE(comm.is_ok());
  EXPECT_EQ(comm.status().code(), Code::kPeerGone) << comm.status().to_string();
}

TEST_F(HandshakeTest, PeerThatGivesUpEndsTheWaitWithItsReason) {
  const Handle handle = listener().handle();
  EXPECT_FALSE(there_->finish(Status(Code::kCuda, "listen", "no GPU"), Deadline::after(milliseconds(1))).is_ok());
  plugin_.answer_not_yet(Call::kConnect, 1u << 30);
  const auto comm = connect_comm(plugin_, 0, handle, wait());
  ASSERT_FALSE(comm.is_ok());
  EXPECT_EQ(comm.status().to_string(), "TCPX_E_CUDA: peer reported: listen: no GPU");
}

TEST_F(HandshakeTest, StopFlagEndsTheWait) {
  Listener end = listener();
  const std::atomic<bool> stop = true;
  const auto comm = end.accept(device_handle_, {soon(), &*here_, &stop});
  ASSERT_FALSE(comm.is_ok());
  EXPECT_EQ(comm.status().detail(), "interrupted");
}

TEST_F(HandshakeTest, PluginErrorsArePassedOnAndNothingStaysOpen) {
  plugin_.fail_call(Call::kListen, 1, testing::plugin_refused("listen", "no"));
  EXPECT_EQ(Listener::create(plugin_, 0).status().code(), Code::kPlugin);
  FakeNetPlugin other;
  {
    auto end = Listener::create(other, 0);
    ASSERT_TRUE(end.is_ok());
    other.fail_call(Call::kConnect, 1, testing::plugin_refused("connect", "no"));
    other.fail_call(Call::kAccept, 1, testing::plugin_refused("accept", "no"));
    EXPECT_EQ(connect_comm(other, 0, end->handle(), wait()).status().code(), Code::kPlugin);
    EXPECT_EQ(end->accept(device_handle_, wait()).status().code(), Code::kPlugin);
  }
  EXPECT_EQ(other.calls(Call::kClose), 1u) << "the listener closes itself";
  EXPECT_EQ(other.open_comms(), 0u);
}

}  // namespace
}  // namespace tcpx
