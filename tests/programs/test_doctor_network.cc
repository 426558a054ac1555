// What the doctor says of ports, addresses, packet filters and the way to another host.
#include <gtest/gtest.h>

#include <cerrno>

#include "programs/doctor/network_checks.h"
#include "tests/support/doctor_fixture.h"
#include "tests/support/fake_network_source.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::FakeNetworkSource;
using testing::finding_of;
using testing::MadeUpMachine;

constexpr char kPeer[] = "10.0.1.9";
constexpr char kNft[] = "nft -j list ruleset";
constexpr char kTcpHead[] = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

CommandAnswer says(std::string text, int exit_code = 0) {
  return {.installed = true, .timed_out = false, .exit_code = exit_code, .text = std::move(text)};
}

/// A host with eth0 for control and four data NICs in networks of their own.
class DoctorNetwork : public ::testing::Test {
 protected:
  DoctorNetwork() {
    here_.file("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999").file("/proc/sys/net/ipv4/conf/all/rp_filter", "0");
    source_.interface("lo", "127.0.0.1/8").interface("eth0", "10.128.0.2/20");
    for (const char* n : {"1", "2", "3", "4"}) {
      const std::string name = std::string("eth") + n;
      source_.interface(name, std::string("10.0.") + n + ".2/24");
      here_.file("/sys/class/net/" + name + "/mtu", "8244");
    }
    here_.file("/sys/class/net/eth0/mtu", "1460");
    data_ = "eth1,eth2,eth3,eth4";
    source_.routes[kPeer] = {"eth1", "10.0.1.2", false};
    for (const char* n : {"2", "3", "4"}) {
      source_.routes[std::string(kPeer) + " from 10.0." + n + ".2"] = {"eth1", std::string("10.0.") + n + ".2", false};
    }
  }
  Findings check(const std::string& peer = "") {
    Machine machine = here_.machine();
    if (!data_.empty()) machine.variables.emplace_back("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", data_);
    Findings findings = check_network(machine, source_, peer);
    expect_helpful(findings);
    return findings;
  }
  Finding finding(std::string_view name, const std::string& peer = "") { return finding_of(check(peer), name); }
  Verdict worst(const std::string& peer = "") { return worst_of({{"network", check(peer)}}); }

  MadeUpMachine here_;
  std::string data_;  ///< interfaces that the user names; "" for none
  FakeNetworkSource source_;
};

bool has(const Findings& findings, std::string_view check) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) { return finding.check == check; });
}

TEST_F(DoctorNetwork, AHealthyMachineIsWell) {
  source_.commands[kNft] = says(R"({"nftables": [{"metainfo": {"version": "1.0.6"}}]})");
  source_.commands["iptables-save"] = says("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n");
  const Findings findings = check(kPeer);
  EXPECT_EQ(worst_of({{"network", findings}}), Verdict::kOk);
  for (const char* name : {"port[12345]", "ports[50000-60000]", "local_ports", "bootstrap_reserved", "address[eth4]", "rp_filter",
                           "loopback", "firewall[nft]", "firewall[iptables]", "peer", "peer[eth1]", "path_mtu[eth1]"})
    EXPECT_EQ(finding_of(findings, name).verdict, Verdict::kOk) << name;
  EXPECT_EQ(source_.connected_to, "10.0.1.9:12345");
}

// ---- ports

TEST_F(DoctorNetwork, ATakenBootstrapPortNamesItsUserAndAnotherPort) {
  source_.bind_errors = {{12345, EADDRINUSE}, {12346, EADDRINUSE}};
  here_.file("/proc/net/tcp6", std::string(kTcpHead) +
                                   "   0: 00000000000000000000000000000000:3039 00000000000000000000000000000000:0000 0A "
                                   "00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0");
  const Finding finding = this->finding("port[12345]");
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_EQ(finding.found, "a program of user id 1000 listens there");
  EXPECT_TRUE(finding.mend.starts_with("export UCCL_TCPX_BOOTSTRAP_PORT=12347 ")) << finding.mend;
}

TEST_F(DoctorNetwork, ATakenPortWithoutAListenerSaysThatNobodyKnows) {
  source_.bind_errors = {{12345, EADDRINUSE}};
  // An outgoing connection from it.
  here_.file("/proc/net/tcp", std::string(kTcpHead) +
                                  "   0: 0100007F:3039 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 "
                                  "    0        0 4711 1 0000000000000000 20 4 30 10 -1");
  EXPECT_EQ(finding("port[12345]").found, "taken by a connection, or by a listener in no list");
}

TEST_F(DoctorNetwork, TheVariableNamesThePort) {
  here_.variable("UCCL_TCPX_BOOTSTRAP_PORT", "80");
  EXPECT_EQ(finding("port[80]").verdict, Verdict::kOk);
  source_.bind_errors = {{80, EACCES}};
  EXPECT_EQ(finding("port[80]").verdict, Verdict::kFail);
  EXPECT_TRUE(finding("port[80]").mend.starts_with("export UCCL_TCPX_BOOTSTRAP_PORT=1024 ")) << finding("port[80]").mend;
}

TEST_F(DoctorNetwork, AMalformedPortIsTheDefault) {
  here_.variable("UCCL_TCPX_BOOTSTRAP_PORT", "80x");
  EXPECT_EQ(finding("port[12345]").verdict, Verdict::kOk);
}

TEST_F(DoctorNetwork, TheUsualPortsAreTried) {
  here_.file("/proc/net/tcp", std::string(kTcpHead) +
                                  "   0: 00000000:C351 00000000:0000 0A 00000000:00000000 00:00000000 00000000 "
                                  "    0        0 4711 1 0000000000000000 100 0 0 10 0");
  EXPECT_EQ(finding("ports[50000-60000]").found, "64 of 64 tried can be bound, 1 listener in the range");
  for (uint16_t port = 50000; port < 59000; ++port) source_.bind_errors[port] = EADDRINUSE;
  EXPECT_EQ(finding("ports[50000-60000]").verdict, Verdict::kWarn);
  source_.bind_error = EPERM;
  EXPECT_EQ(finding("ports[50000-60000]").verdict, Verdict::kFail);
  EXPECT_NE(finding("ports[50000-60000]").found.find("Operation not permitted"), std::string::npos);
}

TEST_F(DoctorNetwork, TheKernelHasEnoughPortsToGive) {
  EXPECT_EQ(finding("local_ports").found, "the kernel gives listeners ports of 32768-60999, 28232 of them not reserved");
  here_.file("/proc/sys/net/ipv4/ip_local_reserved_ports", "33000,33768-60999");
  EXPECT_EQ(finding("local_ports").verdict, Verdict::kWarn);
  EXPECT_NE(finding("local_ports").found.find(" 999 of them"), std::string::npos) << finding("local_ports").found;
  EXPECT_TRUE(finding("local_ports").mend.starts_with("sysctl -w net.ipv4.ip_local_reserved_ports=''"));
  here_.file("/proc/sys/net/ipv4/ip_local_port_range", "60000\t60999");
  EXPECT_EQ(finding("local_ports").mend, "sysctl -w net.ipv4.ip_local_port_range='32768 60999'");
  const MadeUpMachine bare;
  EXPECT_EQ(finding_of(check_network(bare.machine(), source_, ""), "local_ports").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorNetwork, ThePortRangeIsTried) {
  here_.variable("UCCL_TCPX_PORT_RANGE", "20000-20199").variable("UCCL_TCPX_BOOTSTRAP_PORT", "20000");
  for (const char* check : {"ports[20000-20199]", "port_range", "bootstrap_in_range"})
    EXPECT_EQ(finding(check).verdict, Verdict::kOk) << check;
  for (uint16_t port = 20000; port < 20200; ++port) source_.bind_errors[port] = EADDRINUSE;
  EXPECT_EQ(finding("ports[20000-20199]").verdict, Verdict::kFail);
}

TEST_F(DoctorNetwork, ThePlugInsVariablesNameThePortRange) {
  here_.variable("NCCL_GPUDIRECTTCPX_PORT_BEGIN", "20000").variable("NCCL_GPUDIRECTTCPX_PORT_END", "20019");
  EXPECT_EQ(finding("port_range").verdict, Verdict::kWarn);  // too few
  EXPECT_EQ(finding("bootstrap_in_range").verdict, Verdict::kWarn);
  EXPECT_TRUE(finding("bootstrap_in_range").mend.starts_with("export UCCL_TCPX_BOOTSTRAP_PORT=20000 "));
}

TEST_F(DoctorNetwork, ThePortRangeDoesNotHoldForTheVendorsPlugin) {
  here_.variable("UCCL_TCPX_PORT_RANGE", "50000-60000");
  EXPECT_FALSE(has(check(), "vendor_ports"));
  here_.directory("/run/tcpx");
  EXPECT_EQ(finding("vendor_ports").verdict, Verdict::kWarn);
  EXPECT_EQ(finding("vendor_ports").mend, "sysctl -w net.ipv4.ip_local_port_range='50000 60000'");
  here_.file("/proc/sys/net/ipv4/ip_local_port_range", "50000\t60000");
  EXPECT_EQ(finding("vendor_ports").verdict, Verdict::kOk);
}

TEST_F(DoctorNetwork, ThePortOfServersIsGivenToNobodyElse) {
  here_.file("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535").file("/proc/sys/net/ipv4/ip_local_reserved_ports", "8080");
  EXPECT_EQ(finding("bootstrap_reserved").verdict, Verdict::kWarn);
  EXPECT_EQ(finding("bootstrap_reserved").mend, "sysctl -w net.ipv4.ip_local_reserved_ports='8080,12345'");
  here_.file("/proc/sys/net/ipv4/ip_local_reserved_ports", "8080,12000-12999");
  EXPECT_EQ(finding("bootstrap_reserved").verdict, Verdict::kOk);
}

// ---- addresses

TEST_F(DoctorNetwork, ADataInterfaceIsUpAndHasAnAddress) {
  source_.interface("eth5", "").interface("eth6", "10.0.6.2/24", false).interface("eth7", "169.254.3.3/16");
  source_.interface("eth8", "fe80::1/64").interface("eth9", "fd00::9/64");
  data_ = "eth5,eth6,eth7,eth8,eth9";
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "address[eth5]").found, "it has no address");
  EXPECT_EQ(finding_of(findings, "address[eth6]").mend, "ip link set eth6 up");
  EXPECT_EQ(finding_of(findings, "address[eth7]").found, "only a link-local one: 169.254.3.3/16");
  for (const char* name : {"address[eth5]", "address[eth6]", "address[eth7]", "address[eth8]"})
    EXPECT_EQ(finding_of(findings, name).verdict, Verdict::kFail) << name;
  EXPECT_EQ(finding_of(findings, "address[eth9]").verdict, Verdict::kOk);
  here_.directory("/run/tcpx");
  EXPECT_EQ(finding("address[eth9]").verdict, Verdict::kFail);  // RxDM steers by IPv4
}

TEST_F(DoctorNetwork, WithoutANamedInterfaceThoseInUseCount) {
  data_ = "";
  source_.interface("veth1", "fe80::2/64").interface("eth9", "10.0.9.2/24", false);
  const Findings findings = check();
  EXPECT_TRUE(has(findings, "address[eth0]"));
  EXPECT_FALSE(has(findings, "address[veth1]") || has(findings, "address[eth9]") || has(findings, "address[lo]"));
}

TEST_F(DoctorNetwork, AnInterfaceThatNobodyHasIsNoDevice) {
  data_ = "ib";
  EXPECT_EQ(finding("addresses").verdict, Verdict::kFail);
  EXPECT_NE(finding("addresses").found.find("SOCKET_IFNAME=ib"), std::string::npos);
}

TEST_F(DoctorNetwork, ABridgeOfContainersCarriesNoData) {
  data_ = "";
  EXPECT_EQ(finding("bridges").verdict, Verdict::kOk);
  here_.directory("/sys/class/net/docker0/bridge");
  source_.interface("docker0", "172.17.0.1/16");
  EXPECT_EQ(finding("bridges").verdict, Verdict::kWarn);
  EXPECT_EQ(finding("bridges").mend, "export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='=eth0,eth1,eth2,eth3,eth4'");
  data_ = "docker0,eth1";
  EXPECT_FALSE(has(check(), "bridges"));  // somebody wanted it
}

TEST_F(DoctorNetwork, TwoInterfacesInOneNetworkNeedRoutesOfTheirOwn) {
  source_.interface("eth5", "10.0.1.3/24");
  data_ = "eth1,eth5";
  EXPECT_EQ(finding("subnet[eth1,eth5]").verdict, Verdict::kOk);  // each sends through its own
  source_.routes["10.0.1.1 from 10.0.1.3"] = {"eth1", "10.0.1.3", false};
  EXPECT_EQ(finding("subnet[eth1,eth5]").verdict, Verdict::kWarn);
  EXPECT_EQ(finding("subnet[eth1,eth5]").mend,
            "ip route add 10.0.1.0/24 dev eth5 src 10.0.1.3 table 101 && ip rule add from 10.0.1.3 table 101");
}

TEST_F(DoctorNetwork, StrictReversePathFiltersMatterWithSeveralInterfaces) {
  here_.file("/proc/sys/net/ipv4/conf/eth2/rp_filter", "1");
  EXPECT_EQ(finding("rp_filter").found, "strict on eth2");
  EXPECT_EQ(finding("rp_filter").verdict, Verdict::kWarn);
  here_.file("/proc/sys/net/ipv4/conf/all/rp_filter", "2");  // the larger one holds
  EXPECT_EQ(finding("rp_filter").verdict, Verdict::kOk);
  data_ = "eth1";
  here_.file("/proc/sys/net/ipv4/conf/all/rp_filter", "1");
  EXPECT_EQ(finding("rp_filter").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorNetwork, LoopbackIsNothingForTheVendorsPath) {
  data_ = "=lo";
  EXPECT_EQ(finding("loopback").verdict, Verdict::kOk);
  here_.directory("/run/tcpx");
  EXPECT_EQ(finding("loopback").verdict, Verdict::kFail);
  EXPECT_TRUE(finding("loopback").mend.starts_with("export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,")) << finding("loopback").mend;
}

TEST_F(DoctorNetwork, APeerOnThisMachineIsNothingForTheVendorsPath) {
  for (const char* address : {"127.0.0.1", "10.0.2.2"}) {
    source_.routes[address] = {"lo", address, true};
    EXPECT_EQ(finding("loopback", address).verdict, Verdict::kOk);
    EXPECT_EQ(finding("peer", address).verdict, Verdict::kNotApplicable);
  }
  here_.directory("/run/tcpx");
  for (const char* address : {"127.0.0.1", "10.0.2.2"})
    EXPECT_EQ(finding("loopback", address).verdict, Verdict::kFail) << address;
  EXPECT_EQ(finding("loopback", kPeer).verdict, Verdict::kOk);
}

// ---- packet filters

TEST_F(DoctorNetwork, FirewallProgramsThatTellNothingAreSaidToBe) {
  EXPECT_EQ(finding("firewall[nft]").found, "nft is not installed");
  source_.commands[kNft] = says("Operation not permitted (you must be root)\nnetlink: Error: cache initialization failed\n", 1);
  EXPECT_EQ(finding("firewall[nft]").found, "nft: Operation not permitted (you must be root)");
  EXPECT_NE(finding("firewall[nft]").why.find("sudo"), std::string::npos);
  source_.commands["iptables-save"] = {.installed = true, .timed_out = true};
  EXPECT_EQ(finding("firewall[iptables]").found, "iptables-save does not end within 2 s");
  source_.commands["iptables-save"] = says("what?");
  source_.commands[kNft] = says("{}");
  for (const char* check : {"firewall[nft]", "firewall[iptables]"}) EXPECT_EQ(finding(check).verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorNetwork, AFirewallThatKeepsOurPortsOutFails) {
  source_.commands["iptables-save"] = says("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n");
  const Finding finding = this->finding("firewall[iptables]", kPeer);
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_EQ(finding.found, "TCP to 12345 is kept out by iptables INPUT: policy drop");
  EXPECT_EQ(finding.mend, "iptables -I INPUT -s 10.0.1.9 -p tcp -m multiport --dports 12345,32768:60999 -j ACCEPT");
  EXPECT_TRUE(this->finding("firewall[iptables]").mend.starts_with("iptables -I INPUT -i eth1 -p tcp "));
  source_.commands[kNft] =
      says(R"({"nftables": [{"chain": {"family": "inet", "table": "t", "name": "in", "type": "filter", "hook": "input", "prio": 0,
           "policy": "drop"}}]})");
  EXPECT_EQ(this->finding("firewall[nft]").mend,
            "nft insert rule inet t in iifname { eth1, eth2, eth3, eth4 } tcp dport { 12345, 32768-60999 } accept");
}

TEST_F(DoctorNetwork, AFirewallThatLetsSomeInWarns) {
  source_.commands["iptables-save"] = says("*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.0.0.0/8 -p tcp -j ACCEPT\nCOMMIT\n");
  EXPECT_EQ(finding("firewall[iptables]").verdict, Verdict::kWarn);
}

TEST_F(DoctorNetwork, WhereTheUsualPortsAreOpenThePluginsAreTakenThere) {
  source_.commands["iptables-save"] =
      says("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m multiport --dports 12345,50000:60000 -j ACCEPT\nCOMMIT\n");
  EXPECT_EQ(finding("firewall[iptables]").found, "TCP to 32768-49999 is kept out by iptables INPUT: policy drop");
  EXPECT_TRUE(finding("firewall[iptables]").mend.starts_with("export UCCL_TCPX_PORT_RANGE=50000-60000 "));
  here_.variable("UCCL_TCPX_PORT_RANGE", "50000-60000");
  EXPECT_EQ(finding("firewall[iptables]").verdict, Verdict::kOk);
  here_.directory("/run/tcpx");  // GPUDirect-TCPX reads no such variable
  EXPECT_EQ(finding("firewall[iptables]").verdict, Verdict::kFail);
  EXPECT_TRUE(finding("firewall[iptables]").mend.starts_with("sysctl -w net.ipv4.ip_local_port_range='50000 60000'"));
  here_.file("/proc/sys/net/ipv4/ip_local_port_range", "50000\t60000");
  EXPECT_EQ(finding("firewall[iptables]").verdict, Verdict::kOk);
}

TEST_F(DoctorNetwork, AFirewallIsAskedForThePortRange) {
  here_.variable("UCCL_TCPX_PORT_RANGE", "20000-20999").variable("UCCL_TCPX_BOOTSTRAP_PORT", "20500");
  source_.commands["iptables-save"] =
      says("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m multiport --dports 12345,50000:60000 -j ACCEPT\nCOMMIT\n");
  const Finding finding = this->finding("firewall[iptables]", kPeer);
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_EQ(finding.mend, "iptables -I INPUT -s 10.0.1.9 -p tcp -m multiport --dports 20000:20999 -j ACCEPT");
  here_.directory("/run/tcpx");
  EXPECT_EQ(this->finding("firewall[iptables]", kPeer).mend,
            "iptables -I INPUT -s 10.0.1.9 -p tcp -m multiport --dports 20000:20999,32768:60999 -j ACCEPT");
}

TEST_F(DoctorNetwork, WhatBothProgramsShowIsReportedOnce) {
  source_.commands["iptables-save"] = says(
      "# Generated by iptables-nft-save v1.8.9 (nf_tables)\n*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n");
  source_.commands[kNft] =
      says(R"({"nftables": [{"chain": {"family": "ip", "table": "filter", "name": "INPUT", "type": "filter", "hook": "input",
           "prio": 0, "policy": "drop"}}]})");
  EXPECT_EQ(finding("firewall[nft]").verdict, Verdict::kOk);
  source_.commands["iptables-save"] = {};
  EXPECT_EQ(finding("firewall[nft]").verdict, Verdict::kFail);
}

// ---- another host

TEST_F(DoctorNetwork, OnlyTheInterfaceThatLeadsToThePeerIsTried) {
  const Findings findings = check(kPeer);
  EXPECT_EQ(finding_of(findings, "peer[eth1]").found, "reached from 10.0.1.2; port 12345 is listened on");
  EXPECT_EQ(finding_of(findings, "peer[eth3]").verdict, Verdict::kNotApplicable);
  EXPECT_FALSE(has(findings, "peer[eth0]"));
}

TEST_F(DoctorNetwork, ARefusalMeansThatTheHostIsThere) {
  source_.connects.emplace("10.0.1.2", system_error("connect", ECONNREFUSED));
  EXPECT_EQ(finding("peer[eth1]", kPeer).verdict, Verdict::kOk);
  EXPECT_EQ(finding("peer[eth1]", kPeer).found, "reached from 10.0.1.2; nobody listens on port 12345 now");
}

TEST_F(DoctorNetwork, SilenceAndNoWayFail) {
  source_.connects.emplace("10.0.1.2", Status(Code::kTimeout, "wait for socket", "deadline passed"));
  EXPECT_EQ(finding("peer[eth1]", kPeer).verdict, Verdict::kFail);
  EXPECT_FALSE(has(check(kPeer), "path_mtu[eth1]"));
  source_.connects.insert_or_assign("10.0.1.2", system_error("connect", EHOSTUNREACH));
  EXPECT_EQ(finding("peer[eth1]", kPeer).verdict, Verdict::kFail);
  EXPECT_EQ(finding("peer[eth1]", kPeer).mend, "ip route get 10.0.1.9 from 10.0.1.2 && ip neigh show dev eth1");
}

TEST_F(DoctorNetwork, NoRouteFails) {
  EXPECT_EQ(finding("peer", "10.9.9.9").verdict, Verdict::kFail);
  EXPECT_EQ(finding("peer", "fd00::1").verdict, Verdict::kFail);
  EXPECT_EQ(finding("peer").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorNetwork, AWayThatIsNoDataInterfaceWarnsAndIsTried) {
  source_.routes["10.128.0.7"] = {"eth0", "10.128.0.2", false};
  for (const char* n : {"1", "2", "3", "4"})
    source_.routes[std::string("10.128.0.7 from 10.0.") + n + ".2"] = {"eth0", std::string("10.0.") + n + ".2", false};
  const Findings findings = check("10.128.0.7");
  EXPECT_EQ(finding_of(findings, "peer").verdict, Verdict::kWarn);
  EXPECT_EQ(finding_of(findings, "peer[eth0]").verdict, Verdict::kOk);
  EXPECT_EQ(finding_of(findings, "peer[eth1]").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorNetwork, APeerInTheNetworkOfAnInterfaceThatIsNotUsedWarns) {
  source_.interface("eth5", "10.0.1.3/24");
  data_ = "eth1,eth5";
  source_.routes[std::string(kPeer) + " from 10.0.1.3"] = {"eth1", "10.0.1.3", false};
  EXPECT_EQ(finding("peer[eth5]", kPeer).verdict, Verdict::kWarn);
  EXPECT_NE(finding("peer[eth5]", kPeer).mend.find("dev eth5 src 10.0.1.3 table 101"), std::string::npos);
}

TEST_F(DoctorNetwork, TheSizeOfPacketsOnTheWay) {
  const auto verdict = [&](PathAnswer answer, int mtu) {
    source_.paths["10.0.1.2"] = {answer, mtu};
    return finding("path_mtu[eth1]", kPeer).verdict;
  };
  EXPECT_EQ(verdict(PathAnswer::kArrives, 8244), Verdict::kOk);
  EXPECT_EQ(verdict(PathAnswer::kTooLong, 1460), Verdict::kWarn);
  EXPECT_EQ(finding("path_mtu[eth1]", kPeer).found, "the path carries 1460 bytes, the interface sends 8244");
  EXPECT_EQ(verdict(PathAnswer::kVanishes, 8244), Verdict::kFail);
  EXPECT_EQ(verdict(PathAnswer::kSilent, 8244), Verdict::kNotApplicable);
}

}  // namespace
}  // namespace tcpx::doctor
