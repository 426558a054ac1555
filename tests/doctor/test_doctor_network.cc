// Verdicts on ports, addresses, packet filters and the way to another host.
#include <gtest/gtest.h>

#include <cerrno>

#include "base/socket_io.h"
#include "doctor/network.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::has;
using testing::MadeUpMachine;
using enum Verdict;

constexpr char kPeer[] = "10.0.1.9";
constexpr char kIfname[] = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME";

ChildAnswer says(std::string text, int exit_code = 0) {
  return {.end = ChildAnswer::End::kExited, .number = exit_code, .said = std::move(text)};
}

SocketAddress address_of(const std::string& host) {
  return resolve(host, 0)->front();
}

/// A host with eth0 for control and four data NICs in networks of their own.
class DoctorNetwork : public testing::MachineTest<NetworkFacts> {
 protected:
  DoctorNetwork() : MachineTest(check_network) {
    here_.file("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999").file("/proc/sys/net/ipv4/conf/all/rp_filter", "0");
    add("lo", "127.0.0.1/8");
    add("eth0", "10.128.0.2/20");
    for (const std::string n : {"1", "2", "3", "4"}) add("eth" + n, "10.0." + n + ".2/24");
  }
  /// @param address "10.0.1.2/24", "" for none
  void add(const std::string& name, const std::string& address, bool up = true) {
    all_.push_back({.name = name, .up = up, .loopback = name == "lo", .addresses = {}});
    const size_t slash = address.find('/');
    if (!address.empty()) all_.back().addresses = {{address_of(address.substr(0, slash)), std::stoi(address.substr(slash + 1))}};
  }
  /// Healthy ones. @param data interfaces that the user names
  NetworkFacts facts(const std::string& data) {
    Machine machine = here_.machine();
    if (!data.empty()) machine.variables.all.emplace_back(kIfname, data);
    return network_facts(machine, all_, "");
  }
  NetworkFacts facts() override { return facts("eth1,eth2,eth3,eth4"); }
  /// With a peer that is reached over eth1.
  NetworkFacts with_peer() {
    NetworkFacts facts = this->facts();
    facts.peer.name = kPeer;
    facts.peer.address = address_of(kPeer);
    facts.peer.usual = Route{"eth1", "10.0.1.2", false};
    for (size_t i = 0; i < 4; ++i) facts.peer.routes.push_back({i, Route{"eth1", facts.data[i].ipv4()->address.host(), false}});
    facts.peer.ways.push_back(
        {.interface = "eth1", .source = address_of("10.0.1.2"), .mtu = 8244, .path = PathProbe{PathAnswer::kArrives, 8244}});
    return facts;
  }

  std::vector<NetworkInterface> all_;
};

TEST_F(DoctorNetwork, AHealthyMachineIsWell) {
  NetworkFacts healthy = with_peer();
  healthy.nft = says("");
  healthy.iptables = says("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n");
  EXPECT_EQ(checks_.worst(healthy), kOk);
  checks_.expect_ok(healthy,
                    {"port[12345]", "ports[50000-60000]", "local_ports", "bootstrap_reserved", "address[eth4]", "rp_filter",
                     "loopback", "firewall[nft]", "firewall[iptables]", "peer", "peer[eth1]", "path_mtu[eth1]"});
  const auto binds = [](int bootstrap, size_t bound) {
    return [=](NetworkFacts& facts) { facts.binds = {.bootstrap_error = bootstrap, .bound = bound, .last_error = EADDRINUSE}; };
  };
  checks_.expect(healthy, {{"port[12345]", kWarn, binds(EADDRINUSE, 64)},
                           {"port[12345]", kFail, binds(EACCES, 64)},
                           {"ports[50000-60000]", kWarn, binds(0, 10)},
                           {"ports[50000-60000]", kFail, binds(0, 0)}});
}

// ---- ports

TEST_F(DoctorNetwork, ABootstrapPortThatCannotBeBoundNamesItsUserAndAnotherPort) {
  here_.file("/proc/net/tcp6",
             "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
             "   0: 00000000000000000000000000000000:3039 00000000000000000000000000000000:0000 0A "
             "00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0\n"
             "   1: 0100007F:303A 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0");
  NetworkFacts facts = this->facts();
  ASSERT_EQ(facts.listeners.size(), 1u) << "the other line is a connection";
  facts.binds.bootstrap_error = EADDRINUSE;
  facts.binds.free_port = 12347;
  EXPECT_NE(checks_.finding(facts, "port[12345]").found.find("user id 1000"), std::string::npos);
  EXPECT_TRUE(checks_.finding(facts, "port[12345]").mend.starts_with("export UCCL_TCPX_BOOTSTRAP_PORT=12347 "));
}

TEST_F(DoctorNetwork, TheVariableNamesThePort) {
  EXPECT_EQ(verdict("port[12345]"), kOk);
  here_.variable("UCCL_TCPX_BOOTSTRAP_PORT", "80");
  EXPECT_EQ(verdict("port[80]"), kOk);
  MadeUpMachine malformed;
  malformed.variable("UCCL_TCPX_BOOTSTRAP_PORT", "80x");
  EXPECT_EQ(network_facts(malformed.machine(), all_, "").ports.bootstrap, 12345);
}

TEST_F(DoctorNetwork, TheKernelHasEnoughPortsToGive) {
  here_.file("/proc/sys/net/ipv4/ip_local_reserved_ports", "33000,33768-60999");
  EXPECT_EQ(verdict("local_ports"), kWarn);
  EXPECT_NE(finding("local_ports").found.find(" 999 of them"), std::string::npos);
  here_.file("/proc/sys/net/ipv4/ip_local_port_range", "60000\t60999");
  EXPECT_EQ(finding("local_ports").mend, "sysctl -w net.ipv4.ip_local_port_range='32768 60999'");
  EXPECT_EQ(checks_.verdict(network_facts(MadeUpMachine().machine(), all_, ""), "local_ports"), kNotApplicable);
}

TEST_F(DoctorNetwork, ThePortRangeIsHeldAgainstWhatListens) {
  here_.variable("UCCL_TCPX_PORT_RANGE", "20000-20199").variable("UCCL_TCPX_BOOTSTRAP_PORT", "20000");
  checks_.expect_ok(facts(), {"ports[20000-20199]", "port_range", "bootstrap_in_range"});
  MadeUpMachine other;
  other.variable("NCCL_GPUDIRECTTCPX_PORT_BEGIN", "20000").variable("NCCL_GPUDIRECTTCPX_PORT_END", "20019");
  const NetworkFacts few = network_facts(other.machine(), all_, "");
  for (const char* check : {"port_range", "bootstrap_in_range"}) EXPECT_EQ(checks_.verdict(few, check), kWarn) << check;
}

TEST_F(DoctorNetwork, ThePortRangeDoesNotHoldForTheVendorsPlugin) {
  here_.variable("UCCL_TCPX_PORT_RANGE", "50000-60000");
  EXPECT_FALSE(has(check_network(facts()), "vendor_ports"));
  here_.directory("/run/tcpx");
  EXPECT_EQ(verdict("vendor_ports"), kWarn);
  here_.file("/proc/sys/net/ipv4/ip_local_port_range", "50000\t60000");
  EXPECT_EQ(verdict("vendor_ports"), kOk);
}

TEST_F(DoctorNetwork, ThePortOfServersIsGivenToNobodyElse) {
  here_.file("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535").file("/proc/sys/net/ipv4/ip_local_reserved_ports", "8080");
  EXPECT_EQ(verdict("bootstrap_reserved"), kWarn);
  EXPECT_EQ(finding("bootstrap_reserved").mend, "sysctl -w net.ipv4.ip_local_reserved_ports='8080,12345'");
  here_.file("/proc/sys/net/ipv4/ip_local_reserved_ports", "8080,12000-12999");
  EXPECT_EQ(verdict("bootstrap_reserved"), kOk);
}

// ---- addresses

TEST_F(DoctorNetwork, ADataInterfaceIsUpAndHasAnAddress) {
  add("eth5", "");
  add("eth6", "10.0.6.2/24", false);
  add("eth7", "169.254.3.3/16");
  add("eth8", "fe80::1/64");
  add("eth9", "fd00::9/64");
  const std::string data = "eth5,eth6,eth7,eth8,eth9";
  for (const char* name : {"address[eth5]", "address[eth6]", "address[eth7]", "address[eth8]"})
    EXPECT_EQ(checks_.verdict(facts(data), name), kFail) << name;
  EXPECT_EQ(checks_.verdict(facts(data), "address[eth9]"), kOk);
  here_.directory("/run/tcpx");
  EXPECT_EQ(checks_.verdict(facts(data), "address[eth9]"), kFail);  // RxDM steers by IPv4
}

TEST_F(DoctorNetwork, WithoutANamedInterfaceThoseInUseCount) {
  add("veth1", "fe80::2/64");
  add("eth9", "10.0.9.2/24", false);
  const Findings findings = check_network(facts(""));
  EXPECT_TRUE(has(findings, "address[eth0]"));
  EXPECT_FALSE(has(findings, "address[veth1]") || has(findings, "address[eth9]") || has(findings, "address[lo]"));
  EXPECT_EQ(checks_.verdict(facts("ib"), "addresses"), kFail);
}

TEST_F(DoctorNetwork, WithoutAnInterfaceThatIsUpNoVariableIsBlamedThatNobodyHasSet) {
  all_.clear();
  add("lo", "", false);
  const Finding finding = checks_.finding(facts(""), "addresses");
  EXPECT_EQ(finding.verdict, kFail);
  EXPECT_EQ(finding.found, "no interface is up and has an address");
  EXPECT_TRUE(finding.mend.starts_with("ip link set lo up")) << finding.mend;
  EXPECT_EQ(checks_.finding(facts("ib"), "addresses").mend, "unset NCCL_GPUDIRECTTCPX_SOCKET_IFNAME");
}

TEST_F(DoctorNetwork, ABridgeOfContainersCarriesNoData) {
  EXPECT_EQ(checks_.verdict(facts(""), "bridges"), kOk);
  add("docker0", "172.17.0.1/16");
  all_.back().kind = {"bridge", Reach::kHere};
  EXPECT_EQ(checks_.finding(facts(""), "bridges").found, "docker0 (bridge) carries no data: it leads to no other host");
  EXPECT_EQ(checks_.verdict(facts(""), "bridges"), kOk);
  EXPECT_FALSE(has(check_network(facts("")), "address[docker0]"));
  EXPECT_FALSE(has(check_network(facts("docker0,eth1")), "bridges"));  // somebody wanted it
  EXPECT_TRUE(has(check_network(facts("docker0,eth1")), "address[docker0]"));
  here_.directory("/run/tcpx");  // GPUDirect-TCPX asks for names alone
  EXPECT_EQ(checks_.verdict(facts(""), "bridges"), kWarn);
  EXPECT_EQ(checks_.finding(facts(""), "bridges").mend, "export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='=eth0,eth1,eth2,eth3,eth4'");
}

TEST_F(DoctorNetwork, TwoInterfacesInOneNetworkNeedRoutesOfTheirOwn) {
  add("eth5", "10.0.1.3/24");
  NetworkFacts facts = this->facts("eth1,eth5");
  ASSERT_EQ(facts.shared.size(), 1u);
  facts.shared[0].one_is_used = true;
  EXPECT_EQ(checks_.verdict(facts, "subnet[eth1,eth5]"), kWarn);
  EXPECT_EQ(checks_.finding(facts, "subnet[eth1,eth5]").mend,
            "ip route add 10.0.1.0/24 dev eth5 src 10.0.1.3 table 101 && ip rule add from 10.0.1.3 table 101");
  facts.shared[0].other_is_used = true;
  EXPECT_EQ(checks_.verdict(facts, "subnet[eth1,eth5]"), kOk);
}

TEST_F(DoctorNetwork, StrictReversePathFiltersMatterWithSeveralInterfaces) {
  here_.file("/proc/sys/net/ipv4/conf/eth2/rp_filter", "1");
  EXPECT_EQ(verdict("rp_filter"), kWarn);
  here_.file("/proc/sys/net/ipv4/conf/all/rp_filter", "2");  // the larger one holds
  EXPECT_EQ(verdict("rp_filter"), kOk);
  EXPECT_EQ(checks_.verdict(facts("eth1"), "rp_filter"), kNotApplicable);
}

TEST_F(DoctorNetwork, LoopbackIsNothingForTheVendorsPath) {
  const auto to_self = [&] {
    NetworkFacts facts = with_peer();
    facts.peer.usual = Route{"lo", "10.0.2.2", true};
    return facts;
  };
  EXPECT_EQ(checks_.verdict(to_self(), "peer"), kNotApplicable);
  for (const Verdict expected : {kOk, kFail}) {
    EXPECT_EQ(checks_.verdict(facts("=lo"), "loopback"), expected);
    EXPECT_EQ(checks_.verdict(to_self(), "loopback"), expected);
    EXPECT_EQ(checks_.verdict(with_peer(), "loopback"), kOk);
    here_.directory("/run/tcpx");
  }
}

// ---- packet filters

class DoctorFirewall : public DoctorNetwork {
 protected:
  Finding iptables(const std::string& rules) {
    NetworkFacts facts = this->facts();
    facts.iptables = says(rules);
    return checks_.finding(facts, "firewall[iptables]");
  }
  Finding nft(const std::string& rules) {
    NetworkFacts facts = this->facts();
    facts.nft = says(rules);
    return checks_.finding(facts, "firewall[nft]");
  }
};

TEST_F(DoctorFirewall, ProgramsThatTellNothingSaySo) {
  NetworkFacts facts = this->facts();
  for (const ChildAnswer& answer : {ChildAnswer{}, ChildAnswer{.end = ChildAnswer::End::kTimedOut, .said = ""},
                                    says("Operation not permitted (you must be root)\nmore\n", 1)}) {
    facts.nft = facts.iptables = answer;
    for (const char* check : {"firewall[nft]", "firewall[iptables]"}) EXPECT_EQ(checks_.verdict(facts, check), kNotApplicable);
  }
}

TEST_F(DoctorFirewall, RulesThatNameOurPortsOrInterfacesAreShownAsTheyAre) {
  for (const std::string rule :
       {"-A INPUT -p tcp -m tcp --dport 12345 -j DROP", "-A INPUT -p tcp -m multiport --dports 22,50000:60000 -j REJECT",
        "-A INPUT -p tcp -m tcp ! --dport 22 -j DROP", "-A INPUT -i eth2 -j DROP", "-A INPUT -j REJECT --reject-with tcp-reset",
        "-A MORE -p tcp --dport 40000: -j DROP", ":INPUT DROP [0:0]"}) {
    const Finding finding = iptables("*filter\n" + rule + "\nCOMMIT\n");
    EXPECT_EQ(finding.verdict, kWarn) << rule;
    EXPECT_NE(finding.found.find("\n" + rule), std::string::npos) << finding.found;
  }
  for (const std::string rule : {"tcp dport { 22, 50000-60000 } reject with tcp reset", "tcp dport != 22 drop",
                                 "iifname \"eth2\" drop", "meta l4proto { tcp, udp } th dport 12345 drop",
                                 "tcp dport 12345 counter packets 0 bytes 0 drop", "counter packets 0 bytes 0 drop"}) {
    const Finding finding =
        nft("table inet t {\n\tchain in {\n\t\ttype filter hook input priority 0; policy accept;\n\t\t" + rule + "\n\t}\n}");
    EXPECT_EQ(finding.verdict, kWarn) << rule;
    EXPECT_NE(finding.found.find("\n" + rule), std::string::npos) << finding.found;
    EXPECT_TRUE(finding.mend.starts_with("nft insert rule inet t in ")) << finding.mend;
  }
  EXPECT_EQ(nft("table inet t {\n\tchain in {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}").verdict, kWarn);
}

TEST_F(DoctorFirewall, OtherRulesAreNotOurs) {
  for (const char* rule :
       {"-A INPUT -p tcp --dport 22 -j DROP", "-A INPUT -p udp --dport 50000 -j DROP", "-A INPUT -i docker0 -j DROP",
        "-A FORWARD -j DROP", ":FORWARD DROP [0:0]", "-A INPUT -p tcp --dport 12345 -j ACCEPT"}) {
    EXPECT_EQ(iptables(std::string("*filter\n") + rule + "\nCOMMIT\n").verdict, kOk) << rule;
  }
  EXPECT_EQ(iptables("*nat\n:INPUT DROP [0:0]\nCOMMIT\n").verdict, kOk);
  EXPECT_EQ(nft("table inet t {\n\tchain out {\n\t\ttype filter hook output priority 0; policy drop;\n\t\tdrop\n\t}\n}").verdict,
            kOk);
  EXPECT_EQ(nft("table ip6 t {\n\tchain in {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}").verdict, kOk);
}

TEST_F(DoctorFirewall, ThePortRangeIsWhatRulesAreHeldAgainst) {
  const std::string rules = "*filter\n-A INPUT -p tcp --dport 40000 -j DROP\nCOMMIT\n";
  EXPECT_EQ(iptables(rules).verdict, kWarn);
  here_.variable("UCCL_TCPX_PORT_RANGE", "20000-20999");
  EXPECT_EQ(iptables(rules).verdict, kOk);
  here_.directory("/run/tcpx");  // GPUDirect-TCPX reads no such variable
  EXPECT_EQ(iptables(rules).verdict, kWarn);
}

TEST_F(DoctorFirewall, RulesThatBothProgramsShowAreReportedOnce) {
  NetworkFacts facts = this->facts();
  facts.nft = says("table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy drop;\n\t}\n}");
  EXPECT_EQ(checks_.verdict(facts, "firewall[nft]"), kWarn);
  facts.iptables = says("# Generated by iptables-nft-save v1.8.9 (nf_tables)\n*filter\n:INPUT DROP [0:0]\nCOMMIT\n");
  EXPECT_EQ(checks_.verdict(facts, "firewall[nft]"), kOk);
  EXPECT_EQ(checks_.verdict(facts, "firewall[iptables]"), kWarn);
}

// ---- another host

TEST_F(DoctorNetwork, ThePeerIsJudgedByTheWaysToIt) {
  const auto connected = [](const Status& status) { return [=](NetworkFacts& facts) { facts.peer.ways[0].connected = status; }; };
  const auto path = [](PathAnswer answer, int mtu) {
    return [=](NetworkFacts& facts) { facts.peer.ways[0].path = PathProbe{answer, mtu}; };
  };
  const auto over_eth0 = [](NetworkFacts& facts) {
    facts.peer.usual = Route{"eth0", "10.128.0.2", false};
    facts.peer.ways[0].interface = "eth0";
    facts.peer.routes = {{0, Route{"eth0", "10.0.1.2", false}}};
  };
  checks_.expect(with_peer(),
                 {{"peer[eth1]", kOk},
                  {"peer[eth3]", kNotApplicable},
                  {"peer[eth1]", kOk, connected(system_error("connect", ECONNREFUSED))},  // the host is there
                  {"peer[eth1]", kFail, connected(Status(Code::kTimeout, "wait for socket", "deadline passed"))},
                  {"peer[eth1]", kFail, connected(system_error("connect", EHOSTUNREACH))},
                  {"peer", kFail, [](NetworkFacts& facts) { facts.peer.usual = system_error("ask for a route", ENETUNREACH); }},
                  {"peer", kFail, [](NetworkFacts& facts) { facts.peer.address.reset(); }},
                  {"peer", kNotApplicable, [](NetworkFacts& facts) { facts.peer = {}; }},
                  {"peer", kWarn, over_eth0},
                  {"peer[eth0]", kOk, over_eth0},
                  {"peer[eth1]", kWarn, over_eth0},  // the peer is in its network
                  {"path_mtu[eth1]", kOk, path(PathAnswer::kArrives, 8244)},
                  {"path_mtu[eth1]", kWarn, path(PathAnswer::kTooLong, 1460)},
                  {"path_mtu[eth1]", kFail, path(PathAnswer::kVanishes, 8244)},
                  {"path_mtu[eth1]", kNotApplicable, path(PathAnswer::kSilent, 8244)}});
  EXPECT_FALSE(has(check_network(with_peer()), "peer[eth0]"));
}

}  // namespace
}  // namespace tcpx::doctor
