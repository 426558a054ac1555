// Ports of listening sockets: those that the user has opened for them, for any listener.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/socket_io.h"
#include "base/text.h"
#include "net/soft/listener.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/expect_log.h"
#include "transfer/bootstrap.h"

namespace tcpx::testing {
namespace {

constexpr char kRange[] = "UCCL_TCPX_PORT_RANGE";
constexpr char kBegin[] = "NCCL_GPUDIRECTTCPX_PORT_BEGIN", kEnd[] = "NCCL_GPUDIRECTTCPX_PORT_END";

struct Listening {
  std::mutex mutex;
  std::vector<uint16_t> ports;  // of every socket of this process that has listened
};
Listening& listening() {
  static Listening all;
  return all;
}

bool can_be_bound(uint16_t port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address = SocketAddress::any(AF_INET, port);
  return ::bind(fd.get(), address.get(), address.length()) == 0;
}

/// The first of `count` neighbours that nobody has and the kernel gives to nobody.
uint16_t free_ports(int count) {
  static std::mt19937 random{std::random_device{}()};
  for (;;) {
    const int first = std::uniform_int_distribution<int>(20000, 32000 - count)(random);
    int port = first;
    while (port < first + count && can_be_bound(static_cast<uint16_t>(port))) ++port;
    if (port == first + count) return static_cast<uint16_t>(first);
  }
}

uint16_t port_of(const UniqueFd& listener) {
  return local_address(listener.get())->port();
}

class PortRange : public ::testing::Test {
 protected:
  ~PortRange() override {
    for (const char* name : {kRange, kBegin, kEnd}) ::unsetenv(name);
  }
  /// Opens `count` ports for listeners.
  void open(int count) {
    count_ = count;
    first_ = free_ports(count);
    ::setenv(kRange, text().c_str(), 1);
  }
  std::string text() const { return concat(first_, '-', last()); }
  uint16_t last() const { return static_cast<uint16_t>(first_ + count_ - 1); }
  bool holds(uint16_t port) const { return first_ <= port && port <= last(); }
  /// Number of sockets that listened while `act` ran, all of them within the range.
  template <class Act>
  size_t listeners_of(Act act) {
    Listening& all = listening();
    size_t before;
    {
      const std::lock_guard lock(all.mutex);
      before = all.ports.size();
    }
    act();
    const std::lock_guard lock(all.mutex);
    for (size_t i = before; i < all.ports.size(); ++i) EXPECT_TRUE(holds(all.ports[i])) << all.ports[i] << " not in " << text();
    return all.ports.size() - before;
  }

  uint16_t first_ = 0;
  int count_ = 0;
};

Result<UniqueFd> listen_anywhere() {
  return listen_tcp(SocketAddress::loopback(0), 4);
}

TEST_F(PortRange, AnyPortIsOneOfTheRange) {
  open(8);
  std::vector<UniqueFd> held;
  std::set<uint16_t> ports;
  for (int i = 0; i < 8; ++i) {
    auto listener = listen_anywhere();
    ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
    EXPECT_TRUE(holds(port_of(*listener))) << port_of(*listener);
    ports.insert(port_of(*listener));
    held.push_back(std::move(*listener));
  }
  EXPECT_EQ(ports.size(), 8u);
}

TEST_F(PortRange, AUsedUpRangeSaysSo) {
  open(2);
  const auto one = listen_anywhere(), other = listen_anywhere();
  ASSERT_TRUE(one.is_ok() && other.is_ok());
  const Status refused = listen_anywhere().status();
  EXPECT_EQ(refused.code(), Code::kExhausted) << refused.to_string();
  EXPECT_NE(refused.to_string().find(concat(kRange, "=", text())), std::string::npos) << refused.to_string();
}

TEST_F(PortRange, AUsedUpRangeSaysSoThroughThePluginToo) {
  allow_log("TCPX_E_EXHAUSTED");
  auto parts = make_default_parts(loopback_config());
  ASSERT_TRUE(parts.is_ok()) << parts.status().to_string();
  open(1);
  const auto held = listen_anywhere();
  ASSERT_TRUE(held.is_ok()) << held.status().to_string();
  Handle handle;
  const Status refused = parts->plugin->listen(0, handle).status();
  EXPECT_EQ(refused.code(), Code::kExhausted) << refused.to_string();
  EXPECT_NE(refused.detail().find(text()), std::string::npos) << refused.to_string();
}

TEST_F(PortRange, APortServesAgainAsSoonAsItsListenerIsGone) {
  open(1);
  for (int i = 0; i < 3; ++i) {
    const auto listener = listen_anywhere();
    ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
    // A connection that lives on holds up nobody.
    auto client = connect_tcp(SocketAddress::loopback(first_), Deadline::after(std::chrono::seconds(5)));
    ASSERT_TRUE(client.is_ok());
    const UniqueFd server(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
}

TEST_F(PortRange, ManyThatStartTogetherAllFindOne) {
  constexpr int kTogether = 32;
  open(kTogether + 8);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<UniqueFd> held;
  for (int i = 0; i < kTogether; ++i) {
    threads.emplace_back([&] {
      auto listener = listen_anywhere();
      ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
      const std::lock_guard lock(mutex);
      held.push_back(std::move(*listener));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint16_t> ports;
  for (const UniqueFd& listener : held) ports.insert(port_of(listener));
  EXPECT_EQ(ports.size(), size_t{kTogether});
}

TEST_F(PortRange, TheyDoNotAllStartAtTheSamePort) {
  open(1000);
  std::set<uint16_t> ports;
  for (int i = 0; i < 20; ++i) ports.insert(port_of(*listen_anywhere()));
  EXPECT_GT(ports.size(), 1u);
}

TEST_F(PortRange, MalformedIsAnErrorNeverTheDefault) {
  for (const char* bad : {"60000-50000", "0-10", "99999", "50000", "many", "1-65536", "50000-", "-50000", "50000 - 60000",
                          "5-6-7", "50000-60000,7", "-"}) {
    ::setenv(kRange, bad, 1);
    for (const uint16_t port : {uint16_t{0}, free_ports(1)}) {
      const Status refused = listen_tcp(SocketAddress::loopback(port), 4).status();
      EXPECT_EQ(refused.code(), Code::kBadConfig) << bad << ": " << refused.to_string();
      EXPECT_NE(refused.to_string().find(kRange), std::string::npos) << refused.to_string();
    }
  }
}

TEST_F(PortRange, ThePlugInsVariablesAreTheSameWish) {
  open(4);
  ::unsetenv(kRange);
  ::setenv(kBegin, concat(first_).c_str(), 1);
  ::setenv(kEnd, concat(last()).c_str(), 1);
  EXPECT_EQ(listeners_of([] { EXPECT_TRUE(listen_anywhere().is_ok()); }), 1u);
  // Ours goes first, regardless of the others.
  open(4);
  ::setenv(kBegin, "nonsense", 1);
  EXPECT_EQ(listeners_of([] { EXPECT_TRUE(listen_anywhere().is_ok()); }), 1u);
}

TEST_F(PortRange, HalfAWishIsAnError) {
  const auto refusal = [] { return listen_anywhere().status(); };
  for (const auto& [set, missing] : {std::pair{kBegin, kEnd}, std::pair{kEnd, kBegin}}) {
    ::setenv(set, "50000", 1);
    EXPECT_EQ(refusal().code(), Code::kBadConfig);
    EXPECT_NE(refusal().to_string().find(missing), std::string::npos) << refusal().to_string();
    ::unsetenv(set);
  }
  ::setenv(kBegin, "60000", 1);
  ::setenv(kEnd, "50000", 1);
  EXPECT_EQ(refusal().code(), Code::kBadConfig) << refusal().to_string();
  ::setenv(kEnd, "many", 1);
  EXPECT_EQ(refusal().code(), Code::kBadConfig) << refusal().to_string();
}

TEST_F(PortRange, APortAskedForByNumberIsTakenWithANotice) {
  open(4);
  const uint16_t inside = first_;
  EXPECT_TRUE(listen_tcp(SocketAddress::loopback(inside), 4).is_ok());
  EXPECT_FALSE(logged(kRange));
  const uint16_t outside = free_ports(1);
  const auto listener = listen_tcp(SocketAddress::loopback(outside), 4);
  ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
  EXPECT_EQ(port_of(*listener), outside);
  EXPECT_TRUE(logged(concat(kRange, "=", text())));
}

TEST_F(PortRange, HoldsForTheBootstrap) {
  open(4);
  EXPECT_EQ(listeners_of([] {
              const auto everywhere = BootstrapServer::create({}), here = BootstrapServer::create({.host = "127.0.0.1"});
              EXPECT_TRUE(everywhere.is_ok() && here.is_ok());
            }),
            2u);
}

TEST_F(PortRange, HoldsForControlAndDataOfTheSoftwarePlugin) {
  open(4);
  const auto io = soft::IoPool::create(1).value();
  EXPECT_EQ(listeners_of([&] {
              const auto listener = soft::SoftListener::create({.addresses = {SocketAddress::loopback(0)},
                                                                .data_sockets = 1,
                                                                .chunk_bytes = 4096,
                                                                .cookie = {},
                                                                .control_addresses = *resolve("127.0.0.2", 0)},
                                                               io);
              EXPECT_TRUE(listener.is_ok()) << listener.status().to_string();
            }),
            2u);
}

TEST_F(PortRange, HoldsForAnEndpointAndItsConnections) {
  open(64);
  const size_t count = listeners_of([] {
    const auto a = make_endpoint(), b = make_endpoint();
    ASSERT_TRUE(a && b);
    const auto [at_a, at_b] = connect_pair(*a, *b);
    EXPECT_TRUE(moves(*a, at_a, *b, at_b, 1 << 20));
  });
  EXPECT_GE(count, 4u);  // both endpoints, and at least one channel of each direction
}

}  // namespace
}  // namespace tcpx::testing

/// In place of the C library's: notes the ports of this process.
extern "C" int listen(int fd, int backlog) noexcept {
  const int result = static_cast<int>(::syscall(SYS_listen, fd, backlog));
  const int error = errno;
  if (result == 0) {
    if (const auto address = tcpx::local_address(fd); address.is_ok()) {
      auto& all = tcpx::testing::listening();
      const std::lock_guard lock(all.mutex);
      all.ports.push_back(address->port());
    }
  }
  errno = error;
  return result;
}
