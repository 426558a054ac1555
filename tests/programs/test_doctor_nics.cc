// Verdicts on network interfaces: of an A3-like machine, whole and broken, of a plain virtual machine, of a container.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "base/socket_io.h"
#include "programs/doctor/nic.h"
#include "tests/support/doctor_fixture.h"
#include "tests/support/own_network.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::finding_of;
using testing::in_own_network;
using testing::MadeUpMachine;

class DoctorNics : public ::testing::Test {
 protected:
  void add_address(const std::string& interface, const std::string& host) {
    auto address = resolve(host, 0);
    ASSERT_TRUE(address.is_ok()) << host;
    addresses_.push_back({.name = interface,
                          .address = address->front(),
                          .up = true,
                          .loopback = interface == "lo",
                          .link_local = host.starts_with("fe80")});
  }
  void remove_addresses(const std::string& interface) {
    std::erase_if(addresses_, [&](const auto& address) { return address.name == interface; });
  }
  void set(const std::string& interface, const std::string& file, const std::string& value) {
    here_.file("/sys/class/net/" + interface + "/" + file, value);
  }
  /// @param device its folder below /sys/devices; "" for a virtual one
  void add_nic(const std::string& name, const std::string& device, const std::string& driver, size_t queues) {
    const std::string folder = "/sys/class/net/" + name;
    for (size_t i = 0; i < queues; ++i)
      here_.directory(folder + "/queues/rx-" + std::to_string(i)).directory(folder + "/queues/tx-0");
    set(name, "operstate", "up");
    set(name, "mtu", "1500");
    if (device.empty()) return;
    here_.link(folder + "/device", device).link(device + "/driver", "/sys/bus/pci/drivers/" + driver);
    here_.file(device + "/numa_node", "0");
  }
  void add_pci(const std::string& path, const std::string& vendor, const std::string& pci_class) {
    here_.link("/sys/bus/pci/devices/" + path.substr(path.find_last_of('/') + 1), path);
    here_.file(path + "/vendor", vendor).file(path + "/class", pci_class);
  }
  void add_gpu(const std::string& path) { add_pci(path, "0x10de", "0x030200"); }

  Findings check() {
    NicFacts facts = nic_facts(here_.machine(), addresses_);
    for (Nic& nic : facts.data) nic.ethtool = answers_[nic.name];
    Findings findings = check_nics(facts);
    expect_helpful(findings);
    return findings;
  }
  Finding find(std::string_view name) { return finding_of(check(), name); }
  Verdict verdict_of(std::string_view name) { return find(name).verdict; }

  MadeUpMachine here_;
  std::vector<soft::InterfaceAddress> addresses_;
  std::map<std::string, EthtoolAnswers> answers_;
};

// An A3-like machine

class DoctorA3Nics : public DoctorNics {
 protected:
  /// eth0 for control; eth1 to eth4, each behind a switch with two GPUs.
  DoctorA3Nics() {
    here_.directory("/run/tcpx");
    here_.file("/proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\neth1\t0001000A\t0");
    here_.file("/sys/class/net/lo/operstate", "unknown");
    here_.file("/sys/devices/system/node/node0/cpulist", "0-51,104-155");
    add_address("lo", "127.0.0.1");
    add_nic("eth0", "/sys/devices/pci0000:00/0000:00:0b.0", "gve", 16);
    add_address("eth0", "10.0.0.2");
    for (int i = 1; i <= 4; ++i) add_data_nic(i);
  }
  static std::string switch_of(int i) {
    return "/sys/devices/pci0000:0" + std::to_string(i) + "/0000:0" + std::to_string(i) + ":00.0";
  }
  void add_data_nic(int i) {
    const std::string name = "eth" + std::to_string(i), bus = "/0000:" + std::to_string(i);
    add_nic(name, switch_of(i) + bus + "6:00.0", "gve", 16);
    add_gpu(switch_of(i) + bus + "4:00.0");
    add_gpu(switch_of(i) + bus + "5:00.0");
    set(name, "speed", "200000");
    set(name, "mtu", "8244");
    add_address(name, "10.0." + std::to_string(i) + ".2");
    answers_[name] = {.data_split = true,
                      .private_flags = {{"report-stats", false}},
                      .ntuple = true,
                      .ntuple_rules = 2,
                      .statistics = {{"rx_packets", 9}, {"rx_devmem_pkts[8]", 40}, {"rx_devmem_pkts[9]", 2}}};
  }
};

TEST_F(DoctorA3Nics, IsWell) {
  const Findings findings = check();
  EXPECT_EQ(testing::worst_of(findings), Verdict::kOk);
  for (const char* name :
       {"link", "driver", "speed", "mtu", "address", "pci", "header_split", "ntuple", "rx_queues", "rx_devmem_pkts"}) {
    for (const char* nic : {"eth1", "eth2", "eth3", "eth4"})
      EXPECT_EQ(finding_of(findings, std::string(name) + "[" + nic + "]").verdict, Verdict::kOk) << name;
  }
  EXPECT_EQ(finding_of(findings, "pci[eth2]").found,
            "0000:26:00.0, NUMA node 0; behind one bridge with GPU 0000:24:00.0, 0000:25:00.0");
  EXPECT_EQ(finding_of(findings, "rx_devmem_pkts[eth1]").found, "42");
  EXPECT_EQ(finding_of(findings, "others").found, "eth0 (default route), lo");
}

TEST_F(DoctorA3Nics, A5_WhatEndsThePluginFails) {
  EXPECT_EQ(verdict_of("cores[eth1]"), Verdict::kOk);
  set("eth2", "device/numa_node", "1");
  EXPECT_EQ(verdict_of("cores[eth2]"), Verdict::kFail);
  here_.file("/sys/devices/system/node/node1/cpulist", "7");
  here_.variable("NCCL_GPUDIRECTTCPX_TX_BINDINGS", "eth2:7-7").variable("NCCL_GPUDIRECTTCPX_RX_BINDINGS", "eth2:7-7");
  EXPECT_EQ(verdict_of("cores[eth2]"), Verdict::kOk);
  add_nic("eth5", "/sys/devices/pci0000:05/0000:56:00.0/virtio1", "gve", 16);
  EXPECT_EQ(verdict_of("pci[eth5]"), Verdict::kFail);
}

TEST_F(DoctorA3Nics, ALinkThatIsDownFails) {
  set("eth2", "operstate", "down");
  EXPECT_EQ(verdict_of("link[eth2]"), Verdict::kFail);
  EXPECT_EQ(verdict_of("link[eth1]"), Verdict::kOk);
}

TEST_F(DoctorA3Nics, HeaderSplitOffFails) {
  answers_["eth1"].data_split = false;
  EXPECT_EQ(verdict_of("header_split[eth1]"), Verdict::kFail);
}

TEST_F(DoctorA3Nics, HeaderSplitMayBeAPrivateFlag) {
  EthtoolAnswers& answers = answers_["eth1"];
  answers.data_split.reset();
  EXPECT_EQ(verdict_of("header_split[eth1]"), Verdict::kNotApplicable);
  answers.private_flags = {{"report-stats", false},
                           {"enable-header-split", true},
                           {"enable-strict-header-split", true},
                           {"enable-max-rx-buffer-size", true}};
  EXPECT_EQ(verdict_of("header_split[eth1]"), Verdict::kOk);
  answers.private_flags[2].second = answers.private_flags[3].second = false;
  EXPECT_EQ(verdict_of("header_split[eth1]"), Verdict::kFail);
  EXPECT_NE(find("header_split[eth1]").mend.find(" eth1 enable-strict-header-split on enable-max-rx-buffer-size on"),
            std::string::npos);
}

TEST_F(DoctorA3Nics, NtupleFiltersOffFail) {
  answers_["eth4"].ntuple = false;
  EXPECT_EQ(verdict_of("ntuple[eth4]"), Verdict::kFail);
  answers_["eth4"].ntuple.reset();
  EXPECT_EQ(verdict_of("ntuple[eth4]"), Verdict::kNotApplicable);
}

TEST_F(DoctorA3Nics, AnMtuThatMakesTooManyFragmentsFailsAndOthersWarn) {
  const std::map<std::string, Verdict> verdicts = {
      {"1460", Verdict::kFail}, {"1500", Verdict::kFail}, {"2100", Verdict::kFail},  // 4 MiB / 2048 bytes = 2048 fragments
      {"2102", Verdict::kWarn}, {"4148", Verdict::kWarn}, {"8244", Verdict::kOk},   {"8896", Verdict::kWarn},
  };
  for (const auto& [mtu, verdict] : verdicts) {
    set("eth1", "mtu", mtu);
    EXPECT_EQ(verdict_of("mtu[eth1]"), verdict) << mtu;
  }
}

TEST_F(DoctorA3Nics, ASlowLinkWarns) {
  set("eth1", "speed", "50000");
  EXPECT_EQ(verdict_of("speed[eth1]"), Verdict::kWarn);
  set("eth1", "speed", "-1");
  EXPECT_EQ(verdict_of("speed[eth1]"), Verdict::kNotApplicable);
}

TEST_F(DoctorA3Nics, AnotherDriverFailsAndNothingElseIsSaidOfIt) {
  add_nic("ens9", "/sys/devices/pci0000:00/0000:00:09.0", "virtio_net", 1);
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "ens9,eth1,eth2,eth3");
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "driver[ens9]").verdict, Verdict::kFail);
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(), [](const Finding& f) { return f.check.ends_with("[ens9]"); }), 2);
}

TEST_F(DoctorA3Nics, AMissingNicIsMissed) {
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth1,eth2,eth4");
  EXPECT_EQ(verdict_of("data_nics"), Verdict::kWarn);
  EXPECT_EQ(find("others").found, "eth0 (default route), eth3, lo");
}

TEST_F(DoctorA3Nics, WithoutDataNicsNothingCanWork) {
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "ib");
  EXPECT_EQ(verdict_of("data_nics"), Verdict::kFail);
}

TEST_F(DoctorA3Nics, FewQueuesFail) {
  add_nic("eth5", "/sys/devices/pci0000:05/0000:56:00.0", "gve", 8);
  EXPECT_EQ(verdict_of("rx_queues[eth5]"), Verdict::kFail);
}

TEST_F(DoctorA3Nics, ANicFarFromAllGpusWarns) {
  add_nic("eth5", "/sys/devices/pci0000:05/0000:56:00.0", "gve", 16);
  EXPECT_EQ(verdict_of("pci[eth5]"), Verdict::kWarn);
  add_gpu("/sys/devices/pci0000:05/0000:57:00.0");
  EXPECT_EQ(find("pci[eth5]").found, "0000:56:00.0, NUMA node 0; below one PCI root with GPU 0000:57:00.0");
}

TEST_F(DoctorA3Nics, WithoutAnIpv4AddressNoneIsSteered) {
  remove_addresses("eth1");
  EXPECT_EQ(verdict_of("address[eth1]"), Verdict::kFail);
  add_address("eth1", "fe80::1");
  EXPECT_EQ(find("address[eth1]").found, "none");
  add_address("eth1", "fd00::1");
  EXPECT_EQ(verdict_of("address[eth1]"), Verdict::kFail);
  add_address("eth1", "10.0.1.2");
  EXPECT_EQ(find("address[eth1]").found, "fd00::1, 10.0.1.2");
}

TEST_F(DoctorA3Nics, RulesWithoutPacketsWarn) {
  EthtoolAnswers& answers = answers_["eth1"];
  answers.statistics = {{"rx_devmem_pkts", 0}};
  EXPECT_EQ(verdict_of("rx_devmem_pkts[eth1]"), Verdict::kWarn);
  answers.ntuple_rules = 0;
  EXPECT_EQ(verdict_of("rx_devmem_pkts[eth1]"), Verdict::kOk);
  answers.statistics = {{"rx_packets", 7}};
  EXPECT_EQ(verdict_of("rx_devmem_pkts[eth1]"), Verdict::kNotApplicable);
}

// Elsewhere

class DoctorPlainNics : public DoctorNics {
 protected:
  DoctorPlainNics() {
    here_.file("/sys/class/net/lo/operstate", "unknown");
    add_address("lo", "127.0.0.1");
  }
  void add_eth0() {
    add_nic("eth0", "/sys/devices/pci0000:00/0000:00:03.0/virtio2", "virtio_net", 2);
    set("eth0", "speed", "-1");
    add_address("eth0", "192.0.2.7");
    answers_["eth0"] = {.data_split = std::nullopt, .private_flags = {}, .ntuple = false, .ntuple_rules = {}, .statistics = {}};
  }
};

TEST_F(DoctorPlainNics, AVirtualMachineIsWell) {
  add_eth0();
  const Findings findings = check();
  EXPECT_EQ(testing::worst_of(findings), Verdict::kOk);
  EXPECT_EQ(finding_of(findings, "pci[eth0]").found, "0000:00:03.0, NUMA node 0");
  EXPECT_EQ(finding_of(findings, "tcpx[eth0]").verdict, Verdict::kNotApplicable);
  EXPECT_EQ(finding_of(findings, "speed[eth0]").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorPlainNics, AContainerIsWell) {
  add_nic("eth0", "", "", 1);
  set("eth0", "operstate", "unknown");
  add_address("eth0", "172.17.0.2");
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
  EXPECT_EQ(verdict_of("pci[eth0]"), Verdict::kNotApplicable);
}

TEST_F(DoctorPlainNics, AnIdleInterfaceIsNoFailure) {
  add_eth0();
  add_nic("ens7", "/sys/devices/pci0000:00/0000:00:07.0", "e1000", 1);
  set("ens7", "operstate", "down");
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
  EXPECT_EQ(find("others").found, "ens7, lo");
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "ens7");
  EXPECT_EQ(verdict_of("link[ens7]"), Verdict::kFail);
  EXPECT_EQ(verdict_of("address[ens7]"), Verdict::kFail);
}

TEST_F(DoctorPlainNics, ALinkOfAHundredMegabitWarns) {
  add_eth0();
  set("eth0", "speed", "100");
  EXPECT_EQ(verdict_of("speed[eth0]"), Verdict::kWarn);
  set("eth0", "speed", "2500");
  EXPECT_EQ(verdict_of("speed[eth0]"), Verdict::kOk);
}

TEST_F(DoctorPlainNics, AGpuElsewhereIsNoFailure) {
  add_eth0();
  add_gpu("/sys/devices/pci0001:00/0001:00:01.0");
  add_pci("/sys/devices/pci0000:00/0000:00:04.0", "0x10de", "0x020700");  // NVIDIA's, and no GPU
  add_pci("/sys/devices/pci0000:00/0000:00:05.0", "0x1af4", "0x030000");  // the console's
  EXPECT_EQ(find("pci[eth0]").found, "0000:00:03.0, NUMA node 0; no GPU shares its PCI root");
  EXPECT_EQ(verdict_of("pci[eth0]"), Verdict::kOk);
}

TEST_F(DoctorPlainNics, LoopbackAloneReachesNobody) {
  EXPECT_EQ(verdict_of("data_nics"), Verdict::kWarn);
  remove_addresses("lo");
  EXPECT_EQ(verdict_of("data_nics"), Verdict::kFail);
}

TEST_F(DoctorPlainNics, ABridgeOfContainersIsNoWayToOtherHosts) {
  add_eth0();
  add_nic("docker0", "", "", 1);
  here_.directory("/sys/class/net/docker0/bridge");
  add_address("docker0", "172.17.0.1");
  EXPECT_EQ(find("data_nics").mend, "export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==eth0");
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth0,docker0");  // somebody wants it so
  EXPECT_EQ(verdict_of("data_nics"), Verdict::kOk);
}

TEST_F(DoctorPlainNics, AnExclusionKeepsLoopback) {
  add_eth0();
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "^docker");
  EXPECT_EQ(find("data_nics").found, "eth0, lo; local to this machine: lo");
  EXPECT_EQ(find("data_nics").mend, "export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==eth0");
}

// This machine's interfaces

TEST(DoctorEthtool, WhatDoesNotExistAnswersNothing) {
  for (const std::string name : {"", "no-such-nic", "lo-and-a-name-that-is-too-long-for-any"}) {
    const EthtoolAnswers answers = ask_ethtool(name);
    EXPECT_FALSE(answers.data_split || answers.ntuple || answers.ntuple_rules) << name;
    EXPECT_TRUE(answers.private_flags.empty() && answers.statistics.empty()) << name;
  }
}

TEST(DoctorEthtool, LoopbackHasNoFilters) {
  EXPECT_EQ(ask_ethtool("lo").ntuple, false);
}

TEST(DoctorEthtool, StatisticsHaveTheirNames) {
  EthtoolAnswers answers;
  bool made = false;
  std::string missing = in_own_network([&] {
    made = std::system("ip link add left type veth peer name right 2>/dev/null") == 0;
    answers = ask_ethtool("left");
  });
  if (missing.empty() && !made) missing = "no pair of virtual interfaces can be made";
  if (!missing.empty()) GTEST_SKIP() << missing;
  const auto peer = std::find_if(answers.statistics.begin(), answers.statistics.end(),
                                 [](const auto& entry) { return entry.first == "peer_ifindex"; });
  ASSERT_NE(peer, answers.statistics.end());
  EXPECT_GT(peer->second, 0u);
}

}  // namespace
}  // namespace tcpx::doctor
