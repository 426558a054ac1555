#include "base/socket_io.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/ok.h"
#include "tests/support/socket_pair.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::option_of;
using testing::Sockets;
using testing::soon;
using testing::tcp_pair;
using testing::wait_until;

TEST(SocketIo, AListenerMayComeBackAtOnceAndServesBothFamilies) {
  const auto listener = listen_tcp(SocketAddress::any(AF_INET6, 0), 4);
  if (!listener.is_ok()) GTEST_SKIP() << "needs IPv6: " << listener.status().to_string();
  EXPECT_EQ(option_of(*listener, SOL_SOCKET, SO_REUSEADDR), 1);
  EXPECT_EQ(option_of(*listener, IPPROTO_IPV6, IPV6_V6ONLY), 0);
}

TEST(SocketIo, KeepAliveIsAskedForAsGiven) {
  const Sockets pair = tcp_pair();
  ASSERT_OK(set_keep_alive(pair.a.get(), {.idle = seconds(7), .interval = seconds(2), .probes = 5}));
  EXPECT_EQ(option_of(pair.a, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option_of(pair.a, IPPROTO_TCP, TCP_KEEPIDLE), 7);
  EXPECT_EQ(option_of(pair.a, IPPROTO_TCP, TCP_KEEPINTVL), 2);
  EXPECT_EQ(option_of(pair.a, IPPROTO_TCP, TCP_KEEPCNT), 5);
}

TEST(SocketIo, KeepAliveOutlastsAnOutageWheneverItBegins) {
  for (const milliseconds silence : {milliseconds(3300), milliseconds(30000), milliseconds(120000)}) {
    const KeepAlive keep_alive = keep_alive_for(silence);
    EXPECT_GE((keep_alive.probes - 1) * keep_alive.interval, silence) << "it may begin just before the first probe";
    EXPECT_LE(keep_alive.idle + keep_alive.probes * keep_alive.interval, silence + seconds(12));
    EXPECT_OK(set_keep_alive(tcp_pair().a.get(), keep_alive)) << "the kernel takes 127 probes at most";
  }
}

// A TCP socket with bbr, if the kernel has that, and the listener that it is connected to.
std::optional<Sockets> pair_with_bbr(const SocketAddress& to) {
  Sockets pair{.a = {}, .b = listen_tcp(to, 1).value()};
  pair.a = connect_tcp(*local_address(pair.b.get()), Deadline::after(testing::kTestDeadline)).value();
  if (::setsockopt(pair.a.get(), IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) != 0) return std::nullopt;
  return pair;
}

std::string congestion_control_of(const UniqueFd& fd) {
  char name[16] = {};
  socklen_t length = sizeof name;
  EXPECT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
  return name;
}

TEST(SocketIo, WithinAHostOfFewCoresNothingIsPaced) {
  const auto pair = pair_with_bbr(SocketAddress::loopback(0));
  if (!pair) GTEST_SKIP() << "this kernel has no bbr, or lets only root choose it";
  ASSERT_OK(send_without_delay(pair->a.get(), false));
  EXPECT_EQ(congestion_control_of(pair->a), "bbr");
  ASSERT_OK(send_without_delay(pair->a.get(), true));
  EXPECT_EQ(option_of(pair->a, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(congestion_control_of(pair->a), "reno");
}

// The kernel connects to it from 127.0.0.1, as it would to another host from an address of its own.
TEST(SocketIo, BetweenHostsTheCongestionControlStays) {
  const auto pair = pair_with_bbr(resolve("127.0.0.2", 0).value().front());
  if (!pair) GTEST_SKIP() << "this kernel has no bbr, or lets only root choose it";
  ASSERT_OK(send_without_delay(pair->a.get(), true));
  EXPECT_EQ(option_of(pair->a, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(congestion_control_of(pair->a), "bbr");
}

TEST(SocketIo, TheRoundTripIsWhatTheKernelHasMeasured) {
  const Sockets pair = tcp_pair();
  EXPECT_GT(round_trip_of(pair.a.get()), Duration::zero()) << "by the handshake";
  EXPECT_LT(round_trip_of(pair.a.get()), seconds(1));
  int unix_pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, unix_pair), 0);
  const UniqueFd one(unix_pair[0]), other(unix_pair[1]);
  EXPECT_EQ(round_trip_of(one.get()), Duration::zero());
}

// Nothing is read. The usual buffer, the middle number of tcp_rmem, would let it grow to twice the first window.
TEST(SocketIo, AWidenedWindowGrowsBeforeAnythingIsRead) {
  const Sockets pair = tcp_pair();
  const uint32_t before = receive_window(pair.b.get()), wanted = 4 * before;
  widen_receive_window(pair.b.get(), wanted);
  EXPECT_EQ(option_of(pair.b, SOL_SOCKET, SO_RCVLOWAT), 1) << "every byte wakes, as before";
  const std::vector<std::byte> data(wanted);
  size_t sent = 0;
  EXPECT_TRUE(wait_until([&] {
    const ssize_t n = ::send(pair.a.get(), data.data(), std::min<size_t>(16384, wanted - sent), MSG_DONTWAIT);
    sent += n > 0 ? static_cast<size_t>(n) : 0;
    return receive_window(pair.b.get()) > 3 * before;
  })) << before
      << " " << receive_window(pair.b.get());
}

TEST(SocketIo, ErrorsThatMeanALostPeerAreToldApart) {
  for (const int error : {ECONNREFUSED, ECONNRESET, ECONNABORTED, EPIPE, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT}) {
    EXPECT_EQ(system_error("x", error).code(), Code::kPeerGone) << error;
  }
  for (const int error : {EACCES, EADDRINUSE, EBADF}) {
    EXPECT_EQ(system_error("x", error).code(), Code::kSystem) << error;
  }
}

TEST(SocketIo, ErrorsThatMeanAShortageOfThisMachineAreToldApart) {
  for (const int error : {EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC}) {
    const Status status = system_error("x", error);
    EXPECT_EQ(status.code(), Code::kExhausted) << error;
    EXPECT_EQ(status.native(), error);
    EXPECT_TRUE(is_shortage(status)) << error;
    // Users of a connection would ask one that has ended again and again.
    EXPECT_EQ(stream_error("x", error).code(), Code::kSystem) << error;
  }
  EXPECT_EQ(stream_error("x", EPIPE).code(), Code::kPeerGone);
  EXPECT_FALSE(is_shortage(Status(Code::kExhausted, "peer reported", "create socket: Too many open files (errno 24)")));
  EXPECT_FALSE(is_shortage(system_error("x", EACCES)));
}

TEST(SocketIo, MovesMoreThanTheSocketBuffers) {
  Sockets pair = tcp_pair();
  std::vector<std::byte> sent(8u << 20, std::byte{5}), got(sent.size());
  std::thread sender([&] { EXPECT_OK(send_all(pair.a.get(), sent, soon())); });
  EXPECT_OK(recv_all(pair.b.get(), got, soon()));
  sender.join();
  EXPECT_EQ(sent, got);
}

TEST(SocketIo, DeadlineEndsASilentWait) {
  Sockets pair = tcp_pair();
  std::byte byte;
  const Status status = recv_all(pair.b.get(), {&byte, 1}, Deadline::after(milliseconds(20)));
  EXPECT_EQ(status.code(), Code::kTimeout);
}

TEST(SocketIo, EndOfStreamSaysHowFarItGot) {
  Sockets pair = tcp_pair();
  const std::byte bytes[3] = {};
  ASSERT_OK(send_all(pair.a.get(), bytes, soon()));
  pair.a.reset();
  std::byte buffer[8];
  const Status status = recv_all(pair.b.get(), buffer, soon());
  EXPECT_EQ(status.code(), Code::kPeerGone);
  EXPECT_NE(status.detail().find("3 of 8"), std::string::npos) << status.to_string();
}

TEST(SocketIo, Trap35_SendingToAClosedPeerIsAnErrorNotASignal) {
  Sockets pair = tcp_pair();
  pair.b.reset();
  std::vector<std::byte> data(1u << 20);
  Status status = Status::ok();
  for (int i = 0; i < 100 && status.is_ok(); ++i) status = send_all(pair.a.get(), data, soon());
  EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
}

TEST(SocketIo, ConnectionsToDifferentListenersMayShareALocalPort) {
  // Linux takes ports in sequence per destination, starting at a random one: the probability that none of so many sequences
  // meet is below one in ten thousand.
  constexpr int kListeners = 230, kClients = 3;
  const SocketAddress source = SocketAddress::loopback(0);
  std::vector<UniqueFd> clients;
  std::multiset<uint16_t> ports;
  for (int listener = 0; listener < kListeners; ++listener) {
    clients.push_back(std::move(*listen_tcp(SocketAddress::loopback(0), kClients)));
    const SocketAddress address = *local_address(clients.back().get());
    for (int i = 0; i < kClients; ++i) {
      auto client = connect_tcp(address, soon(), &source);
      ASSERT_TRUE(client.is_ok()) << client.status().to_string();
      ports.insert(local_address(client->get())->port());
      clients.push_back(std::move(*client));
    }
  }
  const std::set<uint16_t> different(ports.begin(), ports.end());
  EXPECT_LT(different.size(), ports.size()) << "each has a port of its own: after 28 thousand there are no more";
}

TEST(SocketIo, ConnectRefusedIsPeerGone) {
  uint16_t port = 0;
  {
    auto listener = listen_tcp(SocketAddress::loopback(0), 1);
    port = local_address(listener->get())->port();
  }
  const auto result = connect_tcp(SocketAddress::loopback(port), soon());
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), Code::kPeerGone) << result.status().to_string();
}

TEST(SocketAddress, ResolvesBothFamiliesAndRefusesUnknownNames) {
  EXPECT_EQ(resolve("127.0.0.1", 80)->front().to_string(), "127.0.0.1:80");
  EXPECT_EQ(resolve("::1", 81)->front().to_string(), "[::1]:81");
  EXPECT_EQ(resolve("[::1]", 81)->front().to_string(), "[::1]:81");
  EXPECT_EQ(resolve("::ffff:10.0.0.1", 82)->front().to_string(), "10.0.0.1:82");
  EXPECT_EQ(resolve("::ffff:10.0.0.1", 82)->front().family(), AF_INET6);
  EXPECT_EQ(resolve("no-such-host.invalid", 1).status().code(), Code::kNotFound);
}

TEST(SocketAddress, ResolvesNames) {
  const auto addresses = resolve("localhost", 7);
  if (!addresses.is_ok()) GTEST_SKIP() << "this machine does not know the name localhost";
  for (const SocketAddress& address : *addresses) {
    EXPECT_TRUE(address.to_string() == "127.0.0.1:7" || address.to_string() == "[::1]:7") << address.to_string();
  }
}

}  // namespace
}  // namespace tcpx
