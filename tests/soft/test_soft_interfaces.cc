#include "net/soft/interfaces.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/environment.h"
#include "base/usable_cores.h"
#include "net/soft/wire.h"
#include "tests/support/expect_log.h"

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

InterfaceAddress of_kind(const char* name, const char* host, const char* kind, Reach reach, bool link_local = false) {
  InterfaceAddress address = entry(name, host, true, false, link_local);
  address.kind = {kind, reach};
  return address;
}

/// What public reports name besides the NIC.
std::vector<InterfaceAddress> crowd() {
  return {entry("lo", "127.0.0.1", true, true),
          of_kind("br-9c2f", "172.18.0.1", "bridge", Reach::kHere),
          of_kind("docker0", "172.17.0.1", "bridge", Reach::kHere),
          entry("eth0", "10.20.0.1"),
          of_kind("tailscale0", "100.64.0.1", "tun", Reach::kOverlay),
          of_kind("usb0", "169.254.3.1", "", Reach::kNic, true),
          of_kind("virbr0", "192.168.122.1", "bridge", Reach::kHere),
          of_kind("wlan0", "192.168.1.2", "wireless", Reach::kOverlay)};
}

TEST(SoftInterfaces, WhatLeadsToNoOtherHostIsNoDataNic) {
  EXPECT_EQ(names(choose_interfaces(crowd(), "", AddressFamily::kAny)), "eth0=10.20.0.1 ");
  EXPECT_EQ(names(choose_interfaces(crowd(), "^docker", AddressFamily::kAny)), "eth0=10.20.0.1 ") << "nor loopback";
  EXPECT_EQ(names(choose_interfaces(crowd(), "docker,usb", AddressFamily::kAny)), "docker0=172.17.0.1 usb0=169.254.3.1 ")
      << "they are named";
}

TEST(SoftInterfaces, WithoutANicWhatElseLeadsOutAndLoopbackLast) {
  std::vector<InterfaceAddress> all = crowd();
  std::erase_if(all, [](const auto& each) { return each.name == "eth0"; });
  all.push_back(entry("lo", "10.255.0.7"));  // of a host whose network routes to it
  EXPECT_EQ(names(choose_interfaces(all, "", AddressFamily::kAny)), "lo=10.255.0.7 ");
  all.pop_back();
  EXPECT_EQ(names(choose_interfaces(all, "", AddressFamily::kAny)), "tailscale0=100.64.0.1 wlan0=192.168.1.2 ");
  EXPECT_EQ(names(choose_interfaces(all, "^tail,wlan", AddressFamily::kAny)), "lo=127.0.0.1 ");
  EXPECT_EQ(names(choose_interfaces(all, "^tail,wlan,lo", AddressFamily::kAny)), "");
}

std::string texts(const std::vector<SocketAddress>& addresses) {
  std::string text;
  for (const SocketAddress& address : addresses) text += address.host() + " ";
  return text;
}

std::string addresses(const std::vector<InterfaceAddress>& all, const std::vector<std::string>& interfaces,
                      const std::string& pattern = "", AddressFamily family = AddressFamily::kAny) {
  return texts(choose_addresses(all, interfaces, pattern, family, 8));
}

TEST(SoftAddresses, ADeviceIsReachedInBothFamiliesInWhateverOrderTheSystemTellsThem) {
  std::vector<InterfaceAddress> all = {entry("eth1", "fe80::1"), entry("eth1", "fd00::1"), entry("eth1", "fd00::2"),
                                       entry("eth1", "10.0.0.1"), entry("eth1", "10.0.0.2")};
  all[0].link_local = true;
  for (int order = 0; order < 2; ++order) {
    const auto device_of = [&](AddressFamily family) { return addresses_of(choose_interfaces(all, "", family).at(0)); };
    const auto both = device_of(AddressFamily::kAny);
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(texts(both), order == 0 ? "10.0.0.1 fd00::1 " : "10.0.0.2 fd00::2 ");
    for (const AddressFamily one : {AddressFamily::kIpv4, AddressFamily::kIpv6}) EXPECT_EQ(device_of(one).size(), 1u);
    std::reverse(all.begin(), all.end());
  }
}

TEST(SoftAddresses, BothFamiliesOfTheDevicesInTheirOrder) {
  EXPECT_EQ(addresses(kHost, {"eth1", "eth10", "eth2"}), "10.0.0.1 fd00::1 10.0.0.10 10.0.0.2 ");
  EXPECT_EQ(addresses(kHost, {"eth2", "eth1"}), "10.0.0.2 10.0.0.1 fd00::1 ");
  EXPECT_EQ(addresses(kHost, {"eth2", "eth1"}, "", AddressFamily::kIpv6), "fd00::1 ");
  EXPECT_EQ(addresses(kHost, {"eth1"}, "eth1", AddressFamily::kIpv4), "10.0.0.1 ");
}

TEST(SoftAddresses, EachDeviceComesBeforeTheFurtherOnesOfAny) {
  std::vector<InterfaceAddress> all;
  for (int i = 1; i < 20; ++i) all.push_back(entry("eth1", ("fd00::" + std::to_string(i)).c_str()));
  all.push_back(entry("eth2", "10.0.0.2"));
  EXPECT_EQ(addresses(all, {"eth1", "eth2"}), "fd00::1 10.0.0.2 fd00::2 fd00::3 fd00::4 fd00::5 fd00::6 fd00::7 ");
}

TEST(SoftAddresses, WhatMeansNothingToOthersIsLeftOut) {
  std::vector<InterfaceAddress> all = {entry("eth0", "fe80::1", true, false, true),
                                       entry("eth0", "169.254.3.1", true, false, true), entry("eth0", "10.0.0.1"),
                                       entry("eth0", "10.0.0.9", false)};
  EXPECT_EQ(addresses(all, {"eth0"}), "10.0.0.1 ");
  EXPECT_EQ(addresses(crowd(), {"docker0"}), "172.17.0.1 ") << "a device that the pattern does not give";
}

TEST(SoftAddresses, LoopbackOnlyWhereThereIsNothingElse) {
  std::vector<InterfaceAddress> all = {entry("lo", "127.0.0.1", true, true), entry("lo", "::1", true, true)};
  EXPECT_EQ(addresses(all, {"lo"}), "127.0.0.1 ");
  EXPECT_EQ(addresses(all, {"lo"}, "lo"), "127.0.0.1 ");
  EXPECT_EQ(addresses(all, {"lo"}, "", AddressFamily::kIpv6), "::1 ");
  all.push_back(entry("lo", "10.255.0.7"));  // of a host whose network routes to it
  for (const char* pattern : {"", "lo", "=lo"}) EXPECT_EQ(addresses(all, {"lo"}, pattern), "10.255.0.7 ") << pattern;
}

TEST(SoftAddresses, AnUnusedNicIsNamed) {
  EXPECT_EQ(find_unused(crowd(), "^eth,wlan"), "eth0 10.20.0.1");
  EXPECT_EQ(find_unused(crowd(), "lo"), "") << "chosen by name";
  EXPECT_EQ(find_unused({kHost[0], kHost[6], crowd()[2], crowd()[5]}, ""), "") << "down, for containers, link-local";
}

TEST(SoftInterfaces, HardwareComesFirstThenTheFastest) {
  std::vector<InterfaceAddress> all = {entry("eth0", "10.0.0.1"), entry("eth1", "10.0.0.2"), entry("eth2", "10.0.0.3"),
                                       entry("eth3", "10.0.0.4")};
  for (auto& each : all) each.speed_mbps = 10000;
  all[1].pci_path = all[2].pci_path = all[3].pci_path = "/sys/devices/pci0000:00/0000:00:04.0";
  all[3].speed_mbps = 200000;
  EXPECT_EQ(names(choose_interfaces(all, "", AddressFamily::kAny)), "eth3=10.0.0.4 eth1=10.0.0.2 eth2=10.0.0.3 eth0=10.0.0.1 ");
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
  testing::allow_log("no interface here has the name no-such-interface");
  const auto found = find_interfaces(config);
  ASSERT_EQ(found.status().code(), Code::kBadConfig);
  EXPECT_NE(found.status().detail().find("lo 127.0.0.1"), std::string::npos) << found.status().to_string();
}

TEST(SoftInterfaces, ANameThatNoInterfaceHasIsWarnedOf) {
  testing::allow_log("no interface here has the name");
  EXPECT_TRUE(find_interfaces({.interfaces = "lo,eht7"}).is_ok());
  EXPECT_TRUE(testing::logged("no interface here has the name eht7"));
  EXPECT_FALSE(testing::logged("the name lo"));
  EXPECT_FALSE(find_interfaces({.interfaces = "=loo"}).is_ok());
  EXPECT_TRUE(testing::logged("the name loo, did you mean lo?"));
}

TEST(SoftConfig, MalformedVariablesAreNamed) {
  for (const char* name :
       {"NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS", "NCCL_DYNAMIC_CHUNK_SIZE", "UCCL_TCPX_SOFT_POOL_BYTES",
        "UCCL_TCPX_SOFT_IO_THREADS", "UCCL_TCPX_SOFT_SPIN_US", "NCCL_GPUDIRECTTCPX_TX_BINDINGS", "NCCL_GPUDIRECTTCPX_RX_BINDINGS",
        "UCCL_TCPX_SOFT_CONNECT_TIMEOUT_MS", "UCCL_TCPX_SOFT_ZEROCOPY", "UCCL_TCPX_NETWORK",
        "NCCL_GPUDIRECTTCPX_SOCKET_FAMILY"}) {
    ::setenv(name, "zero", 1);
    const auto config = Config::from_environment();
    ::unsetenv(name);
    ASSERT_FALSE(config.is_ok()) << name;
    EXPECT_EQ(config.status().code(), Code::kBadConfig);
    EXPECT_NE(config.status().detail().find(name), std::string::npos) << config.status().to_string();
  }
  EXPECT_TRUE(Config::from_environment().is_ok());
}

TEST(SoftConfig, NcclsOwnVariablesCountWhereOursAreUnset) {
  const std::string before = environment_text(Variable::kSocketIfname);  // of this program
  ::unsetenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME");
  ::setenv("NCCL_SOCKET_IFNAME", "=eth7:5000", 1);
  ::setenv("NCCL_SOCKET_FAMILY", "AF_INET6", 1);
  auto config = Config::from_environment();
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->interfaces, "=eth7");
  EXPECT_EQ(config->family, AddressFamily::kIpv6);
  EXPECT_TRUE(testing::logged("NCCL_SOCKET_IFNAME=") && testing::logged("NCCL_SOCKET_FAMILY=AF_INET6 is used"));
  testing::allow_log("no interface here has the name eth7");
  EXPECT_NE(find_interfaces(*config).status().detail().find(" NCCL_SOCKET_IFNAME=\"=eth7\""), std::string::npos);
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_FAMILY", "AF_INET", 1);
  config = Config::from_environment();
  for (const char* name :
       {"NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "NCCL_GPUDIRECTTCPX_SOCKET_FAMILY"})
    ::unsetenv(name);
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", before.c_str(), 1);
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->interfaces, "lo");
  EXPECT_EQ(config->family, AddressFamily::kIpv4);
}

TEST(SoftInterfaces, TheControlInterfaceIsAnExactNameThatIsUp) {
  const auto chosen = [](const char* name, AddressFamily family) {
    return texts(*choose_control_addresses(kHost, name, family));
  };
  EXPECT_EQ(chosen("eth1", AddressFamily::kAny), "10.0.0.1 fd00::1 ");
  EXPECT_EQ(chosen("eth1", AddressFamily::kIpv6), "fd00::1 ");
  EXPECT_EQ(chosen("lo", AddressFamily::kAny), "127.0.0.1 ::1 ");
  for (const char* wrong : {"eth", "eth3", "eth2,eth1", "=eth1", "^eth1", "no-such-interface"}) {
    const auto address = choose_control_addresses(kHost, wrong, AddressFamily::kAny);
    EXPECT_EQ(address.status().code(), Code::kBadConfig) << wrong;
    EXPECT_NE(address.status().detail().find("NCCL_GPUDIRECTTCPX_CTRL_DEV"), std::string::npos) << address.status().to_string();
  }
  EXPECT_EQ(choose_control_addresses(kHost, "eth2", AddressFamily::kIpv6).status().code(), Code::kBadConfig) << "no such address";
  EXPECT_TRUE(find_control_addresses({})->empty()) << "unset";
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

// A setting that asks for threads gets them.
TEST(SoftConfig, SocketsAreLentWhereThereWouldBeOneThread) {
  ::unsetenv("UCCL_TCPX_SOFT_IO_THREADS");
  ::unsetenv("UCCL_TCPX_SOFT_SPIN_US");
  EXPECT_EQ(Config::from_environment()->lends_io, usable_cores() < 8);
  ::setenv("UCCL_TCPX_SOFT_IO_THREADS", "1", 1);
  EXPECT_FALSE(Config::from_environment()->lends_io);
  ::unsetenv("UCCL_TCPX_SOFT_IO_THREADS");
  ::setenv("UCCL_TCPX_SOFT_SPIN_US", "0", 1);
  EXPECT_FALSE(Config::from_environment()->lends_io);
  ::unsetenv("UCCL_TCPX_SOFT_SPIN_US");
}

TEST(SoftConfig, CopiesAreSparedWhereBytesLeaveTheHost) {
  ::unsetenv("UCCL_TCPX_SOFT_ZEROCOPY");
  EXPECT_TRUE(Config::from_environment()->spare_copies("eth0"));
  EXPECT_FALSE(Config::from_environment()->spare_copies("lo"));
  EXPECT_FALSE(Config::from_environment()->spare_copies("")) << "unknown";
  ::setenv("UCCL_TCPX_SOFT_ZEROCOPY", "off", 1);
  EXPECT_FALSE(Config::from_environment()->spare_copies("eth0"));
  ::setenv("UCCL_TCPX_SOFT_ZEROCOPY", "on", 1);
  EXPECT_TRUE(Config::from_environment()->spare_copies("lo"));
  ::unsetenv("UCCL_TCPX_SOFT_ZEROCOPY");
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
