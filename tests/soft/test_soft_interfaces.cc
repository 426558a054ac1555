#include "net/soft/interfaces.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/usable_cores.h"
#include "net/soft/wire.h"

namespace tcpx::soft {
namespace {

InterfaceAddress entry(const char* name, const char* host, bool up = true, bool loopback = false, bool link_local = false) {
  return {.name = name, .address = resolve(host, 0)->front(), .up = up, .loopback = loopback, .link_local = link_local};
}

std::string names(const std::vector<InterfaceAddress>& chosen) {
  std::string text;
  for (const InterfaceAddress& address : chosen) text += address.name + "=" + address.address.host() + " ";
  return text;
}

const std::vector<InterfaceAddress> kHost = {
    entry("lo", "127.0.0.1", true, true),
    entry("lo", "::1", true, true),
    entry("eth2", "10.0.0.2"),
    entry("eth1", "fd00::1"),
    entry("eth1", "10.0.0.1"),
    entry("eth10", "10.0.0.10"),
    entry("eth3", "10.0.0.3", false),
    entry("wg0", "fe80::1", true, false, true),
};

TEST(SoftInterfaces, WithoutAPatternAllThatAreUpButLoopback) {
  EXPECT_EQ(names(choose_interfaces(kHost, "", AddressFamily::kAny)), "eth1=10.0.0.1 eth10=10.0.0.10 eth2=10.0.0.2 ");
}

TEST(SoftInterfaces, LoopbackWhenNothingElseIsUp) {
  const std::vector<InterfaceAddress> bare = {kHost[0], kHost[1], kHost[6]};
  EXPECT_EQ(names(choose_interfaces(bare, "", AddressFamily::kAny)), "lo=127.0.0.1 ");
}

TEST(SoftInterfaces, PatternsArePrefixesExactNamesOrExclusions) {
  EXPECT_EQ(names(choose_interfaces(kHost, "eth1", AddressFamily::kAny)), "eth1=10.0.0.1 eth10=10.0.0.10 ");
  EXPECT_EQ(names(choose_interfaces(kHost, "=eth1", AddressFamily::kAny)), "eth1=10.0.0.1 ");
  EXPECT_EQ(names(choose_interfaces(kHost, "^eth1,lo", AddressFamily::kAny)), "eth2=10.0.0.2 ");
  EXPECT_EQ(names(choose_interfaces(kHost, "^=eth1,lo", AddressFamily::kAny)), "eth10=10.0.0.10 eth2=10.0.0.2 ");
  EXPECT_EQ(names(choose_interfaces(kHost, "eth2,,lo", AddressFamily::kAny)), "eth2=10.0.0.2 lo=127.0.0.1 ");
  EXPECT_EQ(names(choose_interfaces(kHost, "eth3", AddressFamily::kAny)), "") << "down";
}

TEST(SoftInterfaces, AnExactNameTwiceIsTwoDevices) {
  EXPECT_EQ(names(choose_interfaces(kHost, "=lo,lo,lo", AddressFamily::kAny)), "lo=127.0.0.1 lo=127.0.0.1 lo=127.0.0.1 ");
  EXPECT_EQ(names(choose_interfaces(kHost, "=eth2,eth1,eth2", AddressFamily::kAny)),
            "eth1=10.0.0.1 eth2=10.0.0.2 eth2=10.0.0.2 ");
  EXPECT_EQ(names(choose_interfaces(kHost, "=eth3,eth3", AddressFamily::kAny)), "") << "down";
  EXPECT_EQ(names(choose_interfaces(kHost, "eth2,eth2", AddressFamily::kAny)), "eth2=10.0.0.2 ") << "a prefix, no name";
  EXPECT_EQ(names(choose_interfaces(kHost, "^=lo,lo,eth1,eth2,eth2", AddressFamily::kAny)), "eth10=10.0.0.10 ");
}

TEST(SoftInterfaces, FamilyIsRespected) {
  EXPECT_EQ(names(choose_interfaces(kHost, "", AddressFamily::kIpv6)), "eth1=fd00::1 ");
  EXPECT_EQ(names(choose_interfaces(kHost, "lo", AddressFamily::kIpv6)), "lo=::1 ");
}

TEST(SoftInterfaces, AtMostSixteen) {
  std::vector<InterfaceAddress> many;
  for (int i = 0; i < 30; ++i) many.push_back(entry(("eth" + std::to_string(i)).c_str(), "10.0.0.1"));
  EXPECT_EQ(choose_interfaces(many, "", AddressFamily::kAny).size(), kMaxInterfaces);
  std::string pattern = "=lo";
  for (int i = 0; i < 30; ++i) pattern += ",lo";
  EXPECT_EQ(choose_interfaces(kHost, pattern, AddressFamily::kAny).size(), kMaxInterfaces);
}

TEST(SoftInterfaces, NoMatchNamesWhatIsThere) {
  Config config;
  config.interfaces = "no-such-interface";
  const auto found = find_interfaces(config);
  ASSERT_EQ(found.status().code(), Code::kBadConfig);
  EXPECT_NE(found.status().detail().find("lo 127.0.0.1"), std::string::npos) << found.status().to_string();
}

TEST(SoftConfig, MalformedVariablesAreNamed) {
  for (const char* name :
       {"NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS", "NCCL_DYNAMIC_CHUNK_SIZE", "UCCL_TCPX_SOFT_POOL_BYTES",
        "UCCL_TCPX_SOFT_IO_THREADS", "UCCL_TCPX_SOFT_SPIN_US", "NCCL_GPUDIRECTTCPX_TX_BINDINGS", "NCCL_GPUDIRECTTCPX_RX_BINDINGS",
        "UCCL_TCPX_SOFT_CONNECT_TIMEOUT_MS", "NCCL_GPUDIRECTTCPX_SOCKET_FAMILY"}) {
    ::setenv(name, "zero", 1);
    const auto config = Config::from_environment();
    ::unsetenv(name);
    ASSERT_FALSE(config.is_ok()) << name;
    EXPECT_EQ(config.status().code(), Code::kBadConfig);
    EXPECT_NE(config.status().detail().find(name), std::string::npos) << config.status().to_string();
  }
  EXPECT_TRUE(Config::from_environment().is_ok());
}

TEST(SoftInterfaces, TheControlInterfaceIsAnExactNameThatIsUp) {
  EXPECT_EQ(choose_control_address(kHost, "eth1", AddressFamily::kAny)->host(), "10.0.0.1");
  EXPECT_EQ(choose_control_address(kHost, "eth1", AddressFamily::kIpv6)->host(), "fd00::1");
  EXPECT_EQ(choose_control_address(kHost, "lo", AddressFamily::kAny)->host(), "127.0.0.1");
  for (const char* wrong : {"eth", "eth3", "eth2,eth1", "=eth1", "^eth1", "no-such-interface"}) {
    const auto address = choose_control_address(kHost, wrong, AddressFamily::kAny);
    EXPECT_EQ(address.status().code(), Code::kBadConfig) << wrong;
    EXPECT_NE(address.status().detail().find("NCCL_GPUDIRECTTCPX_CTRL_DEV"), std::string::npos) << address.status().to_string();
  }
  EXPECT_EQ(choose_control_address(kHost, "eth2", AddressFamily::kIpv6).status().code(), Code::kBadConfig) << "no such address";
  EXPECT_FALSE(find_control_address({})->has_value()) << "unset";
}

TEST(SoftConfig, TheDefaultOfSpinningLeavesTwoCoresToCallers) {
  ::unsetenv("UCCL_TCPX_SOFT_IO_THREADS");
  ::unsetenv("UCCL_TCPX_SOFT_SPIN_US");
  EXPECT_EQ(Config::from_environment()->spin > Duration::zero(), usable_cores() >= Config::from_environment()->io_threads + 2);
  ::setenv("UCCL_TCPX_SOFT_IO_THREADS", "64", 1);
  EXPECT_EQ(Config::from_environment()->spin > Duration::zero(), usable_cores() >= 66);
  ::setenv("UCCL_TCPX_SOFT_SPIN_US", "7", 1);
  EXPECT_EQ(Config::from_environment()->spin, std::chrono::microseconds(7)) << "asked for";
  ::setenv("UCCL_TCPX_SOFT_SPIN_US", "1000001", 1);
  EXPECT_EQ(Config::from_environment().status().code(), Code::kBadConfig);
  ::unsetenv("UCCL_TCPX_SOFT_IO_THREADS");
  ::unsetenv("UCCL_TCPX_SOFT_SPIN_US");
}

TEST(SoftConfig, BindingsAreReadPerDirection) {
  ::setenv("NCCL_GPUDIRECTTCPX_TX_BINDINGS", "lo:0", 1);
  const auto config = Config::from_environment();
  ::unsetenv("NCCL_GPUDIRECTTCPX_TX_BINDINGS");
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->send_cores, (Bindings{{"lo", {0}}}));
  EXPECT_TRUE(config->receive_cores.empty());
}

TEST(SoftConfig, DevicesShareAsManySocketsAsTheMachineFeeds) {
  ::unsetenv("NCCL_NSOCKS_PERTHREAD");
  ::unsetenv("NCCL_SOCKET_NTHREADS");
  const auto sockets = [](uint32_t cores, size_t devices) { return Config::from_environment()->data_sockets(cores, devices); };
  EXPECT_EQ(sockets(32, 1), 8u);
  EXPECT_EQ(sockets(32, 2), 4u);
  EXPECT_EQ(sockets(32, 3), 2u);
  EXPECT_EQ(sockets(208, 4), 2u);
  EXPECT_EQ(sockets(208, kMaxInterfaces), 2u) << "at least";
  EXPECT_EQ(sockets(31, 1), 4u);
  EXPECT_EQ(sockets(31, 2), 2u);
  EXPECT_EQ(sockets(31, 4), 1u);
  EXPECT_EQ(sockets(1, kMaxInterfaces), 1u) << "at least";
  EXPECT_EQ(sockets(0, 1), 4u) << "a machine that does not tell";
  ::setenv("NCCL_SOCKET_NTHREADS", "2", 1);
  EXPECT_EQ(sockets(32, 4), 4u) << "twice as many";
  ::setenv("NCCL_NSOCKS_PERTHREAD", "3", 1);
  EXPECT_EQ(sockets(16, 4), 6u) << "asked for";
  EXPECT_EQ(sockets(1, 1), 6u) << "asked for";
  ::unsetenv("NCCL_NSOCKS_PERTHREAD");
  ::unsetenv("NCCL_SOCKET_NTHREADS");
}

TEST(SoftConfig, SizesAreRoundedToPagesAndSocketsCapped) {
  ::setenv("NCCL_DYNAMIC_CHUNK_SIZE", "5000", 1);
  ::setenv("NCCL_NSOCKS_PERTHREAD", "8", 1);
  ::setenv("NCCL_SOCKET_NTHREADS", "8", 1);
  const auto config = Config::from_environment();
  ::unsetenv("NCCL_DYNAMIC_CHUNK_SIZE");
  ::unsetenv("NCCL_NSOCKS_PERTHREAD");
  ::unsetenv("NCCL_SOCKET_NTHREADS");
  ASSERT_TRUE(config.is_ok());
  EXPECT_EQ(config->chunk_bytes, 8192u);
  EXPECT_EQ(config->data_sockets(16, 1), kMaxDataSockets);
}

}  // namespace
}  // namespace tcpx::soft
