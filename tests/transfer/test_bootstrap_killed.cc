// The status of each end of a bootstrap channel when the other process dies, at any step.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "tests/support/bootstrap_ends.h"
#include "transfer/bootstrap.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(BootstrapProcess, NothingSentIsLostWhenBothLeaveWithoutSleeping) {
  auto server = must(BootstrapServer::create({.host = "127.0.0.1"}));
  for (int round = 0; round < 100; ++round) {
    auto client = in_thread([&] {
      TCPX_ASSIGN_OR_RETURN(auto channel, bootstrap_connect("127.0.0.1", server->port(), soon()));
      TCPX_RETURN_IF_ERROR(channel.send_handles(some_handles(kMaxHandlesPerFrame), soon()));
      return channel.finish(Status::ok(), soon());
    });
    auto channel = must(server->accept(soon()));
    EXPECT_EQ(channel.receive_handles(kMaxHandlesPerFrame, soon()).value(), some_handles(kMaxHandlesPerFrame));
    EXPECT_OK(channel.finish(Status::ok(), soon()));
    EXPECT_OK(client.get());
  }
}

// The whole conversation of a set-up. Before step `die_before` the process is killed (-1: never).
constexpr int kSteps = 5;
Status converse(BootstrapChannel& channel, bool server, int die_before) {
  Status status = Status::ok();
  for (int step = 0; step < kSteps && status.is_ok(); ++step) {
    if (step == die_before) ::raise(SIGKILL);
    switch (step) {
      case 0:
        status = channel.exchange_parameters({{"bytes", "1"}}, {}, soon()).status();
        break;
      case 1:
        status = server ? channel.send_handles(some_handles(2), soon()) : channel.receive_handles(2, soon()).status();
        break;
      case 2:
        status = server ? channel.receive_handles(2, soon()).status() : channel.send_handles(some_handles(2), soon());
        break;
      case 3:
        status = channel.barrier(soon());
        break;
      case 4:
        return channel.finish(Status::ok(), soon());
    }
  }
  return channel.finish(status, soon());
}

class BootstrapPeerKilled : public ::testing::TestWithParam<std::tuple<bool, int>> {};

TEST_P(BootstrapPeerKilled, OtherEndGetsAnErrorWithinASecond) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  // Sockets are not inherited by a child (base/fork.h): the server tells the other the port.
  std::unique_ptr<BootstrapServer> server;
  const auto open = [&](bool as_server) -> Result<BootstrapChannel> {
    uint16_t port = 0;
    if (!as_server) {
      write_end.reset();  // or reading would not end when the other process has ended without a word
      if (::read(read_end.get(), &port, sizeof port) != static_cast<ssize_t>(sizeof port))
        return Status(Code::kPeerGone, "read the port", "the other process has not told it");
      return bootstrap_connect("127.0.0.1", port, soon());
    }
    TCPX_ASSIGN_OR_RETURN(server, BootstrapServer::create({.host = "127.0.0.1"}));
    port = server->port();
    EXPECT_EQ(::write(write_end.get(), &port, sizeof port), static_cast<ssize_t>(sizeof port));
    return server->accept(soon());
  };
  const auto [child_is_server, step] = GetParam();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto channel = open(child_is_server);
    if (channel.is_ok()) (void)converse(*channel, child_is_server, step);
    ::_exit(1);
  }
  auto channel = must(open(!child_is_server));
  const TimePoint begin = Clock::steady().now();
  const Status status = converse(channel, !child_is_server, -1);
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
  EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) << how;
}

INSTANTIATE_TEST_SUITE_P(EveryStep, BootstrapPeerKilled, ::testing::Combine(::testing::Bool(), ::testing::Range(0, kSteps)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "Server" : "Client") + "BeforeStep" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST(BootstrapProcess, ServerKilledBeforeItAnswersTheHello) {
  auto listener = must(listen_tcp(SocketAddress::loopback(0), 4));
  const uint16_t port = local_address(listener.get())->port();
  keep_in_child(listener.get());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (wait_for(listener.get(), POLLIN, soon()).is_ok() && ::accept(listener.get(), nullptr, nullptr) >= 0) ::raise(SIGKILL);
    ::_exit(1);
  }
  listener.reset();
  const TimePoint begin = Clock::steady().now();
  const auto channel = bootstrap_connect("127.0.0.1", port, Deadline::after(milliseconds(900)));
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
  EXPECT_FALSE(channel.is_ok());
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) << "nobody came to the child: " << how;
}

}  // namespace
}  // namespace tcpx::testing
