// Where an endpoint is, as it tells others and hears from them.
#include "endpoint/whereabouts.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/ok.h"
#include "tests/support/own_network.h"

namespace tcpx::testing {
namespace {

const SocketAddress kDual = SocketAddress::any(AF_INET6, 1), kIpv4Only = SocketAddress::any(AF_INET, 1);

SocketAddress at(const std::string& host) {
  return must(resolve(host, 1)).front();
}

std::vector<SocketAddress> all_of(std::initializer_list<const char*> hosts) {
  std::vector<SocketAddress> addresses;
  for (const char* host : hosts) addresses.push_back(at(host));
  return addresses;
}

Whereabouts told(const EndpointConfig& config, const SocketAddress& listens, std::initializer_list<const char*> own,
                 const std::string& unused = "") {
  return must(whereabouts(config, listens, all_of(own), unused));
}

TEST(Whereabouts, AllAddressesThatTheListenerServes) {
  EXPECT_EQ(told({}, kDual, {"10.0.0.1", "fd00::1"}).hosts, "10.0.0.1,fd00::1");
  EXPECT_EQ(told({.listen_address = "::"}, kDual, {"10.0.0.1", "fd00::1"}).hosts, "10.0.0.1,fd00::1");
  EXPECT_EQ(told({}, kIpv4Only, {"fd00::1", "10.0.0.1"}).hosts, "10.0.0.1") << "as without IPv6";
  EXPECT_EQ(told({.listen_address = "10.0.0.2"}, at("10.0.0.2"), {"10.0.0.1", "fd00::1"}).hosts, "10.0.0.2");
  EXPECT_EQ(told({}, kDual, {"10.0.0.1"}, "eth1 10.0.0.2").line, "");
}

TEST(Whereabouts, OfHostsThatAreOpenToAnybodyLoopbackIsNone) {
  const std::vector<std::string> nics{"127.0.0.1", "10.0.0.1", "fd00::1", "::1"};
  EXPECT_EQ(open_hosts({}, kDual, nics), "10.0.0.1,fd00::1");
  EXPECT_EQ(open_hosts({}, kDual, {"127.0.0.1", "::1"}), "");
  EXPECT_EQ(open_hosts({}, kDual, {}), "");
  EXPECT_EQ(open_hosts({.listen_address = "0.0.0.0"}, kIpv4Only, {}), "0.0.0.0");
  EXPECT_EQ(open_hosts({.listen_address = "10.0.0.2"}, at("10.0.0.2"), nics), "10.0.0.2");
  for (const char* host : {"127.0.0.1", "::1", "127.0.0.9"})
    EXPECT_EQ(open_hosts({.listen_address = host}, at(host), nics), "") << host;
}

TEST(Whereabouts, ThePublicAddressOverridesAll) {
  EndpointConfig config{.listen_address = "10.0.0.2"};
  for (const char* hosts : {"host-7.example", "127.0.0.1", "10.0.0.9,fd00::9"}) {
    config.public_address = hosts;
    const Whereabouts here = told(config, at("10.0.0.2"), {"10.0.0.1"}, "eth1 10.0.0.2");
    EXPECT_EQ(here.hosts, hosts);
    EXPECT_EQ(here.line, "") << "as the user wishes";
  }
  for (const char* hosts : {"10.0.0.9, fd00::9", "a,", "\x01"}) {
    config.public_address = hosts;
    EXPECT_EQ(whereabouts(config, kDual, {}, "").status().code(), Code::kInvalidArgument) << hosts;
  }
}

TEST(Whereabouts, LoopbackIsWarnedOfWhereANicIsThere) {
  const Whereabouts warned = told({}, kDual, {"127.0.0.1"}, "eth0 10.0.0.1");
  EXPECT_EQ(warned.hosts, "127.0.0.1");
  EXPECT_EQ(warned.level, LogLevel::kWarning);
  EXPECT_NE(warned.line.find("eth0 10.0.0.1 is not used: set public_address"), std::string::npos) << warned.line;
  const Whereabouts alone = told({}, kDual, {});
  EXPECT_EQ(alone.hosts, "127.0.0.1");
  EXPECT_EQ(alone.level, LogLevel::kInfo) << "a machine without a network";
  EXPECT_NE(alone.line, "");
  const Whereabouts other_family = told({.listen_address = "0.0.0.0"}, kIpv4Only, {"fd00::1"});
  EXPECT_EQ(other_family.hosts, "127.0.0.1");
  EXPECT_EQ(other_family.level, LogLevel::kWarning) << other_family.line;
}

TEST(Whereabouts, AnOwnNameThatIsLoopbackIsWarnedOf) {
  const Whereabouts warned = told({.listen_address = "worker-3"}, at("127.0.1.1"), {"10.0.0.1"});
  EXPECT_EQ(warned.hosts, "127.0.1.1");
  EXPECT_EQ(warned.level, LogLevel::kWarning);
  EXPECT_NE(warned.line.find("worker-3, which is 127.0.1.1 here"), std::string::npos) << warned.line;
  for (const char* meant : {"localhost", "127.0.0.1", "::1", "ip6-localhost"})
    EXPECT_EQ(told({.listen_address = meant}, at("127.0.0.1"), {"10.0.0.1"}).line, "") << meant;
  EXPECT_EQ(told({.listen_address = "worker-3"}, at("10.0.0.1"), {}).line, "");
}

TEST(PeerHosts, LoopbackOfAnotherNetworkIsNotThePeer) {
  const auto tried = [](const char* hosts, uint64_t network, uint64_t here) {
    return hosts_to_try({.host = hosts, .port = 1, .gpu_idx = 0, .instance = 1, .network = network}, here);
  };
  EXPECT_EQ(tried("127.0.0.1,10.0.0.1,::1,fd00::1", 5, 6).hosts, "10.0.0.1,fd00::1");
  EXPECT_EQ(tried("127.0.0.1,10.0.0.1", 5, 5).hosts, "127.0.0.1,10.0.0.1");
  for (const auto& [network, here] : {std::pair<uint64_t, uint64_t>{0, 6}, {5, 0}, {5, 5}}) {
    EXPECT_EQ(tried("127.0.0.1", network, here).hosts, "127.0.0.1");
    EXPECT_FALSE(tried("127.0.0.1", network, here).foreign_loopback) << network << " " << here;
  }
  EXPECT_EQ(tried("127.0.0.1,::1", 5, 6).hosts, "127.0.0.1,::1") << "there may be a tunnel";
  EXPECT_TRUE(tried("127.0.0.1,::1", 5, 6).foreign_loopback);
  EXPECT_FALSE(tried("localhost", 5, 6).foreign_loopback) << "no look-up for this";
}

TEST(PeerHosts, EachNetworkHasANumberOfItsOwn) {
  const uint64_t here = network_of_thread();
  EXPECT_NE(here, 0u);
  EXPECT_EQ(network_of_thread(), here);
  const std::string missing = in_own_network([&] { EXPECT_NE(network_of_thread(), here); });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(Metadata, HostsAndNetworkArrive) {
  const auto decoded = must(decode_metadata(encode_metadata({"10.0.0.1,fd00::1", 7, 3, 11, 13})));
  EXPECT_EQ(decoded.host, "10.0.0.1,fd00::1");
  EXPECT_EQ(decoded.port, 7);
  EXPECT_EQ(decoded.gpu_idx, 3);
  EXPECT_EQ(decoded.instance, 11u);
  EXPECT_EQ(decoded.network, 13u);
}

TEST(Metadata, OfTheVersionBeforeIsStillRead) {
  std::vector<uint8_t> old = encode_metadata({"10.0.0.1", 7, 3, 11, 13});
  old.erase(old.begin() + 24, old.begin() + 32);
  old[6] = 1;
  const auto decoded = must(decode_metadata(old));
  EXPECT_EQ(decoded.host, "10.0.0.1");
  EXPECT_EQ(decoded.instance, 11u);
  EXPECT_EQ(decoded.network, 0u);
}

TEST(Metadata, WhatAPeerSaysIsBounded) {
  const auto code = [](const std::string& hosts) {
    return decode_metadata(encode_metadata({hosts, 7, 0, 11, 13})).status().code();
  };
  std::string hosts = "10.0.0.1";
  for (int i = 0; i < 7; ++i) hosts += ",10.0.0.1";
  EXPECT_EQ(code(hosts), Code::kOk);
  for (const std::string& bad : {hosts + ",10.0.0.1", std::string(256, 'x'), std::string(), std::string("a,,b"),
                                 std::string("a b"), std::string("a\0b", 3), std::string(65535, ',')})
    EXPECT_EQ(code(bad), Code::kInvalidArgument) << bad.substr(0, 100);
}

}  // namespace
}  // namespace tcpx::testing
