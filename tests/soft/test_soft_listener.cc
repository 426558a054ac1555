// The software plugin's listener under load and without descriptors.
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>

#include "base/log.h"
#include "base/socket_io.h"
#include "net/soft/connector.h"
#include "net/soft/listener.h"
#include "tests/support/dead_address.h"
#include "tests/support/expect_log.h"
#include "tests/support/io_blocker.h"
#include "tests/support/soft_wire.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using namespace soft;

class SoftListening : public ::testing::Test {
 protected:
  void SetUp() override { listen({}); }
  void listen(const ListenerLimits& limits) {
    const HandleInfo info = {.addresses = {SocketAddress::loopback(0)}, .data_sockets = 1, .chunk_bytes = 4096, .cookie = {}};
    listener_ = must(SoftListener::create(info, io_, limits));
    info_ = *decode_handle(listener_->handle());
  }
  static std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
    std::array<std::byte, kHelloBytes> bytes;
    encode_hello(hello, bytes);
    return bytes;
  }
  std::array<std::byte, kHelloBytes> hello(uint64_t connection, uint32_t socket_index) const {
    return encode({.connection = connection, .socket_index = socket_index, .data_sockets = 1, .proof = in_clear(info_.cookie)});
  }
  /// A socket that has sent these bytes.
  UniqueFd client(std::span<const std::byte> says) const {
    UniqueFd fd = must(connect_tcp(info_.addresses.front(), soon()));
    send_bytes(fd, says);
    return fd;
  }
  static bool is_answered(const UniqueFd& fd) {
    std::array<std::byte, kHelloAnswerBytes> answer;
    return recv_all(fd.get(), answer, soon()).is_ok() && decode_hello_answer(answer).is_ok();
  }
  std::shared_ptr<IoPool> io_ = *IoPool::create(1);
  std::unique_ptr<SoftListener> listener_;
  HandleInfo info_;
};

TEST_F(SoftListening, ABurstOfGoodClientsIsServedWhole) {
  constexpr uint64_t kClients = 300;
  std::vector<UniqueFd> clients;
  {
    const Blocker blocker(*io_);
    for (uint64_t i = 0; i < kClients; ++i) {
      for (uint32_t socket = 0; socket < 2; ++socket) clients.push_back(client(hello(i, socket)));
    }
  }
  uint64_t accepted = 0;
  EXPECT_TRUE(wait_until([&] {
    if (listener_->try_accept()) ++accepted;
    return accepted == kClients;
  })) << accepted
      << " of " << kClients;
}

TEST_F(SoftListening, EverySendingSocketSendsAtOnce) {
  const ConnectedSockets ours = connect_softly(listener_->handle());
  EXPECT_EQ(option_of(ours.data[0], IPPROTO_TCP, TCP_NODELAY), 1);
}

TEST_F(SoftListening, ControlSocketsMayComeToAnotherAddress) {
  const HandleInfo wanted = {.addresses = {SocketAddress::loopback(0)},
                             .data_sockets = 2,
                             .chunk_bytes = 4096,
                             .cookie = {},
                             .control_addresses = *resolve("127.0.0.2", 0)};
  const auto listener = must(SoftListener::create(wanted, io_));
  const auto info = decode_handle(listener->handle());
  ASSERT_TRUE(info.is_ok() && info->control_addresses.size() == 1);
  EXPECT_EQ(info->control_addresses.front().host(), "127.0.0.2");
  const std::vector<SocketAddress> source = *resolve("127.0.0.3", 0), control_source = *resolve("127.0.0.4", 0);
  const auto connected = must(connect_to_listener(*info, source, soon(), control_source));
  EXPECT_EQ(peer_address(connected.control.get())->to_string(), info->control_addresses.front().to_string());
  EXPECT_EQ(local_address(connected.control.get())->host(), "127.0.0.4");
  for (const UniqueFd& data : connected.data) {
    EXPECT_EQ(peer_address(data.get())->to_string(), info->addresses.front().to_string());
    EXPECT_EQ(local_address(data.get())->host(), "127.0.0.3");
  }
  EXPECT_TRUE(wait_until([&] { return listener->try_accept().has_value(); }));
  // Without a given address the kernel chooses that of our control socket; the one for data must not be bound.
  EXPECT_NE(local_address(connect_to_listener(*info, source, soon())->control.get())->host(), "127.0.0.3");
  // Without an address of its own the control socket goes where the data sockets go, and comes from there.
  const auto together = must(connect_to_listener(info_, source, soon(), control_source));
  EXPECT_EQ(peer_address(together.control.get())->to_string(), info_.addresses.front().to_string());
  EXPECT_EQ(local_address(together.control.get())->host(), "127.0.0.3");
}

TEST_F(SoftListening, IsReachedInEitherFamily) {
  const SocketAddress six = at("::1");
  if (!listen_tcp(six, 1).is_ok()) GTEST_SKIP() << "no IPv6";
  const auto listener = must(SoftListener::create(
      {.addresses = {SocketAddress::loopback(0), six}, .data_sockets = 2, .chunk_bytes = 4096, .cookie = {}}, io_));
  HandleInfo info = must(decode_handle(listener->handle()));
  ASSERT_EQ(info.addresses.size(), 2u);
  const auto expect_family = [&](int family, const std::vector<SocketAddress>& sources) {
    const auto connected = must(connect_to_listener(info, sources, soon()));
    for (const UniqueFd* fd : {&connected.data[0], &connected.data[1], &connected.control})
      EXPECT_EQ(must(peer_address(fd->get())).family(), family);
    EXPECT_TRUE(wait_until([&] { return listener->try_accept().has_value(); }));
  };
  expect_family(AF_INET, {SocketAddress::loopback(0), six});
  expect_family(AF_INET, {SocketAddress::loopback(0)});
  expect_family(AF_INET6, {six});
  const DeadAddress dead(own_host(2));
  info.addresses.front() = dead.address();
  expect_family(AF_INET6, {SocketAddress::loopback(0), six});
}

TEST_F(SoftListening, AnAddressThatHasGoneIsNotTold) {
  HandleInfo wanted = {.addresses = {SocketAddress::loopback(0), at("2001:db8::1")}, .data_sockets = 1, .chunk_bytes = 4096};
  const auto listener = must(SoftListener::create(wanted, io_));
  const HandleInfo info = must(decode_handle(listener->handle()));
  ASSERT_EQ(info.addresses.size(), 1u);
  EXPECT_EQ(info.addresses.front().host(), "127.0.0.1");
  wanted.addresses.erase(wanted.addresses.begin());
  EXPECT_EQ(SoftListener::create(wanted, io_).status().code(), Code::kSystem);
}

TEST_F(SoftListening, TheWholeCookieCounts) {
  allow_log("wrong cookie");
  for (size_t i = 0; i < sizeof(Cookie); ++i) {
    Hello almost = {.connection = 1, .socket_index = 0, .data_sockets = 1, .proof = in_clear(info_.cookie)};
    almost.proof[i] ^= std::byte{1};
    EXPECT_TRUE(is_dropped(client(encode(almost)))) << "byte " << i;
  }
  EXPECT_TRUE(is_answered(client(hello(1, 0))));
}

TEST_F(SoftListening, AConnectionWhoseSocketsStayAwayIsLetGo) {
  allow_log("1 of 2 sockets came in time");
  listen({.group_timeout = std::chrono::milliseconds(100)});
  const UniqueFd half = client(hello(1, 0));
  ASSERT_TRUE(is_answered(half));
  EXPECT_TRUE(is_dropped(half));
  EXPECT_FALSE(listener_->has_peer());
}

TEST_F(SoftListening, UnfinishedConnectionsAreBounded) {
  allow_log("more than 3 unfinished connections");
  listen({.groups = 3});
  std::vector<UniqueFd> halves;
  for (uint64_t connection = 0; connection < 3; ++connection) {
    halves.push_back(client(hello(connection, 0)));
    ASSERT_TRUE(is_answered(halves.back())) << connection;
  }
  EXPECT_TRUE(is_dropped(client(hello(3, 0))));
  EXPECT_TRUE(is_answered(client(hello(2, 1)))) << "one of those that are known";
  EXPECT_TRUE(wait_until([&] { return listener_->try_accept().has_value(); }));
  EXPECT_TRUE(is_answered(client(hello(3, 0)))) << "there is room again";
}

std::atomic<int> accept_warnings;

void count_warnings(LogLevel, std::string_view text, void*) {
  if (text.find("accept") != std::string_view::npos) ++accept_warnings;
}

TEST_F(SoftListening, WhoeverComesWhileDescriptorsAreOutIsServedLater) {
  // One is served first, because the undefined-behaviour checker inspects each class once, through a pipe of its own, which
  // must happen while descriptors are available.
  EXPECT_TRUE(is_answered(client(hello(0, 0))));

  accept_warnings = 0;
  set_log_sink(&count_warnings, nullptr);
  const UniqueFd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::vector<UniqueFd> used_up;
  for (int fd = ::dup(late.get()); fd >= 0; fd = ::dup(late.get())) used_up.emplace_back(fd);
  EXPECT_EQ(::connect(late.get(), info_.addresses.front().get(), info_.addresses.front().length()), 0);
  EXPECT_TRUE(wait_until([] { return accept_warnings > 0; }));
  EXPECT_FALSE(wait_until([] { return accept_warnings > 1; }, std::chrono::seconds(1))) << "one line says it";
  used_up.clear();
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  send_bytes(late, hello(1, 0));
  EXPECT_TRUE(is_answered(late)) << "nobody came back to the one in the backlog";
}

}  // namespace
}  // namespace tcpx::testing
