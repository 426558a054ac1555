// Verdicts on network interfaces: of an A3-like machine, whole and broken, of a plain virtual machine, of a container.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

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

constexpr char kIfname[] = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME";

/// A data NIC of an A3 machine, with all that GPUDirect-TCPX needs.
Nic a3_nic(const std::string& name) {
  return {.name = name,
          .driver = "gve",
          .pci = "0000:06:00.0",
          .numa_node = 0,
          .state = "up",
          .speed_mbps = 200'000,
          .mtu = 8244,
          .rx_queues = 16,
          .addresses = {resolve("10.0.1.2", 0)->front()},
          .nearest_gpus = {"0000:04:00.0", "0000:05:00.0"},
          .gpu_distance = TopologyDistance::kPix,
          .ethtool = {.data_split = true,
                      .private_flags = {},
                      .ntuple = true,
                      .ntuple_rules = 2,
                      .statistics = {{"rx_packets", 9}, {"rx_devmem_pkts[8]", 40}, {"rx_devmem_pkts[9]", 2}}}};
}
NicFacts a3() {
  return {.expected = {true, "a test"},
          .gpus = 8,
          .data = {a3_nic("eth1"), a3_nic("eth2"), a3_nic("eth3"), a3_nic("eth4")},
          .others = {"eth0 (default route)", "lo"}};
}
/// A virtual machine, or a container where it has no PCI device.
NicFacts plain() {
  Nic nic{.name = "eth0", .driver = "virtio_net", .pci = "0000:00:03.0", .state = "up", .mtu = 1500, .rx_queues = 2};
  nic.addresses = {resolve("192.0.2.7", 0)->front()};
  return {.expected = {false, "a test"}, .data = {nic}, .others = {"lo"}};
}
Finding finding(const NicFacts& facts, std::string_view name) {
  const Findings findings = check_nics(facts);
  expect_helpful(findings);
  return finding_of(findings, name);
}

/// Changes to the first interface, and the verdicts that they bring.
struct Case {
  const char* check;
  Verdict verdict;
  std::function<void(Nic&)> change;
};
void expect_verdicts(const NicFacts& healthy, const std::vector<Case>& cases) {
  EXPECT_EQ(testing::worst_of(check_nics(healthy)), Verdict::kOk);
  for (size_t i = 0; i < cases.size(); ++i) {
    NicFacts facts = healthy;
    cases[i].change(facts.data[0]);
    const std::string name = std::string(cases[i].check) + "[" + facts.data[0].name + "]";
    EXPECT_EQ(finding(facts, name).verdict, cases[i].verdict) << name << ", case " << i;
  }
}

TEST(DoctorNics, AnA3NeedsAllOfIt) {
  for (const char* check :
       {"link", "driver", "speed", "mtu", "address", "pci", "cores", "header_split", "ntuple", "rx_queues", "rx_devmem_pkts"})
    EXPECT_EQ(finding(a3(), std::string(check) + "[eth3]").verdict, Verdict::kOk) << check;
  const auto flags = [](Nic& nic, bool strict) {
    nic.ethtool.data_split.reset();
    nic.ethtool.private_flags = {{"report-stats", false}, {"enable-header-split", true}, {"enable-strict-header-split", strict}};
  };
  expect_verdicts(
      a3(), {{"link", Verdict::kFail, [](Nic& nic) { nic.state = "down"; }},
             {"driver", Verdict::kFail, [](Nic& nic) { nic.driver = "virtio_net"; }},
             {"speed", Verdict::kWarn, [](Nic& nic) { nic.speed_mbps = 50'000; }},
             {"speed", Verdict::kNotApplicable, [](Nic& nic) { nic.speed_mbps.reset(); }},
             {"mtu", Verdict::kFail, [](Nic& nic) { nic.mtu = 1460; }},
             {"mtu", Verdict::kFail, [](Nic& nic) { nic.mtu = 2100; }},  // 4 MiB / 2048 bytes = 2048 fragments
             {"mtu", Verdict::kWarn, [](Nic& nic) { nic.mtu = 2102; }},
             {"mtu", Verdict::kWarn, [](Nic& nic) { nic.mtu = 8896; }},
             {"address", Verdict::kFail, [](Nic& nic) { nic.addresses.clear(); }},
             {"address", Verdict::kFail, [](Nic& nic) { nic.addresses = {resolve("fd00::1", 0)->front()}; }},
             {"pci", Verdict::kFail, [](Nic& nic) { nic.pci_trap = VendorTrap{.found = "x", .why = "y", .mend = "z"}; }},
             {"pci", Verdict::kWarn, [](Nic& nic) { nic.gpu_distance = TopologyDistance::kNode; }},
             {"pci", Verdict::kOk, [](Nic& nic) { nic.gpu_distance = TopologyDistance::kPhb; }},
             {"cores", Verdict::kFail, [](Nic& nic) { nic.cores_trap = VendorTrap{.found = "x", .why = "y", .mend = "z"}; }},
             {"header_split", Verdict::kFail, [](Nic& nic) { nic.ethtool.data_split = false; }},
             {"header_split", Verdict::kNotApplicable, [](Nic& nic) { nic.ethtool.data_split.reset(); }},
             {"header_split", Verdict::kOk, [&](Nic& nic) { flags(nic, true); }},
             {"header_split", Verdict::kFail, [&](Nic& nic) { flags(nic, false); }},
             {"ntuple", Verdict::kFail, [](Nic& nic) { nic.ethtool.ntuple = false; }},
             {"ntuple", Verdict::kNotApplicable, [](Nic& nic) { nic.ethtool.ntuple.reset(); }},
             {"rx_queues", Verdict::kFail, [](Nic& nic) { nic.rx_queues = 8; }},
             {"rx_devmem_pkts", Verdict::kNotApplicable,
              [](Nic& nic) {
                nic.ethtool.statistics = {{"rx_packets", 7}};
              }},
             {"rx_devmem_pkts", Verdict::kWarn,
              [](Nic& nic) {
                nic.ethtool.statistics = {{"rx_devmem_pkts", 0}};
              }},
             {"rx_devmem_pkts", Verdict::kOk, [](Nic& nic) {
                nic.ethtool.statistics = {{"rx_devmem_pkts", 0}};
                nic.ethtool.ntuple_rules = 0;
              }}});
}

TEST(DoctorNics, NothingElseIsSaidOfAnotherDriver) {
  NicFacts facts = a3();
  facts.data[0].driver = "virtio_net";
  const Findings findings = check_nics(facts);
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(), [](const auto& it) { return it.check.ends_with("[eth1]"); }), 2);
}

TEST(DoctorNics, APlainMachineIsWellWithLess) {
  expect_verdicts(plain(), {{"driver", Verdict::kOk, [](Nic& nic) { nic.driver.clear(); }},
                            {"pci", Verdict::kNotApplicable, [](Nic& nic) { nic.pci.clear(); }},
                            {"link", Verdict::kOk, [](Nic& nic) { nic.state = "unknown"; }},
                            {"link", Verdict::kFail, [](Nic& nic) { nic.state = "down"; }},
                            {"address", Verdict::kFail, [](Nic& nic) { nic.addresses.clear(); }},
                            {"speed", Verdict::kNotApplicable, [](Nic&) {}},
                            {"speed", Verdict::kWarn, [](Nic& nic) { nic.speed_mbps = 100; }},
                            {"speed", Verdict::kOk, [](Nic& nic) { nic.speed_mbps = 2500; }},
                            {"tcpx", Verdict::kNotApplicable, [](Nic&) {}}});
}

TEST(DoctorNics, DataInterfacesThatAreMissingOrLocalAreTold) {
  NicFacts facts = a3();
  facts.data.pop_back();
  EXPECT_EQ(finding(facts, "data_nics").verdict, Verdict::kWarn);
  facts.data.clear();
  EXPECT_EQ(finding(facts, "data_nics").verdict, Verdict::kFail);
  facts.expected.vendor_path = false;
  EXPECT_EQ(finding(facts, "data_nics").verdict, Verdict::kFail);
  facts = plain();
  facts.data.push_back({.name = "docker0", .state = "up", .is_local = true});
  EXPECT_EQ(finding(facts, "data_nics").verdict, Verdict::kWarn);
  EXPECT_EQ(finding(facts, "data_nics").mend, "export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==eth0");
  facts.data.erase(facts.data.begin());
  EXPECT_EQ(finding(facts, "data_nics").verdict, Verdict::kWarn) << "nobody else is reached";
}

// Facts from files

class DoctorNicFacts : public ::testing::Test {
 protected:
  void add_nic(const std::string& name, const std::string& device, const std::string& driver, const std::string& address) {
    const std::string folder = "/sys/class/net/" + name;
    here_.file(folder + "/operstate", "up").file(folder + "/mtu", "1500").file(folder + "/speed", "-1");
    here_.directory(folder + "/queues/rx-0").directory(folder + "/queues/rx-1").directory(folder + "/queues/tx-0");
    here_.link(folder + "/device", device).link(device + "/driver", "/sys/bus/pci/drivers/" + driver);
    here_.file(device + "/numa_node", "0");
    addresses_.push_back(
        {.name = name, .address = resolve(address, 0)->front(), .up = true, .loopback = false, .link_local = false});
  }
  void add_pci(const std::string& path, const std::string& vendor, const std::string& pci_class) {
    here_.link("/sys/bus/pci/devices/" + path.substr(path.rfind('/') + 1), path);
    here_.file(path + "/vendor", vendor).file(path + "/class", pci_class);
  }
  std::vector<std::string> data() {
    std::vector<std::string> names;
    for (const Nic& nic : nic_facts(here_.machine(), addresses_).data) names.push_back(nic.name);
    return names;
  }
  using Names = std::vector<std::string>;

  MadeUpMachine here_;
  std::vector<soft::InterfaceAddress> addresses_;
};

TEST_F(DoctorNicFacts, AreReadFromTheTree) {
  const std::string bridge = "/sys/devices/pci0000:00/0000:00:01.0";
  add_nic("eth1", bridge + "/0000:06:00.0/virtio1", "gve", "10.0.1.2");
  add_pci(bridge + "/0000:04:00.0", "0x10de", "0x030200");
  add_pci("/sys/devices/pci0000:80/0000:84:00.0", "0x10de", "0x030200");
  add_pci(bridge + "/0000:07:00.0", "0x10de", "0x020700");  // NVIDIA's, and no GPU
  add_pci(bridge + "/0000:08:00.0", "0x1af4", "0x030000");  // the console's
  const NicFacts facts = nic_facts(here_.machine(), addresses_);
  ASSERT_EQ(facts.data.size(), 1u);
  const Nic& nic = facts.data[0];
  EXPECT_EQ(facts.gpus, 2u);
  EXPECT_EQ(nic.driver, "gve");
  EXPECT_EQ(nic.pci, "0000:06:00.0");
  EXPECT_EQ(nic.numa_node, 0);
  EXPECT_EQ(nic.mtu, 1500);
  EXPECT_EQ(nic.rx_queues, 2u);
  EXPECT_FALSE(nic.speed_mbps.has_value());
  EXPECT_EQ(nic.nearest_gpus, Names{"0000:04:00.0"});
  EXPECT_EQ(nic.gpu_distance, TopologyDistance::kPix);
}

TEST_F(DoctorNicFacts, A5_TheVendorsTrapsAreLookedFor) {
  here_.file("/sys/devices/system/node/node0/cpulist", "0-51,104-155");
  add_nic("eth1", "/sys/devices/pci0000:00/0000:06:00.0", "gve", "10.0.1.2");
  EXPECT_FALSE(nic_facts(here_.machine(), addresses_).data[0].cores_trap.has_value());
  here_.file("/sys/devices/pci0000:00/0000:06:00.0/numa_node", "1");
  EXPECT_TRUE(nic_facts(here_.machine(), addresses_).data[0].cores_trap.has_value());
  here_.file("/sys/devices/system/node/node1/cpulist", "7");
  here_.variable("NCCL_GPUDIRECTTCPX_TX_BINDINGS", "eth1:7-7").variable("NCCL_GPUDIRECTTCPX_RX_BINDINGS", "eth1:7-7");
  EXPECT_FALSE(nic_facts(here_.machine(), addresses_).data[0].cores_trap.has_value());
}

TEST_F(DoctorNicFacts, TheInterfacesForDataAreThoseOfThePath) {
  add_nic("eth0", "/sys/devices/pci0000:00/0000:05:00.0", "gve", "10.0.0.2");
  add_nic("eth1", "/sys/devices/pci0000:00/0000:06:00.0", "gve", "10.0.1.2");
  add_nic("ens7", "/sys/devices/pci0000:00/0000:07:00.0", "e1000", "10.0.7.2");
  addresses_.back().up = false;
  here_.file("/proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\neth1\t0001000A\t0");
  EXPECT_EQ(data(), (Names{"eth0", "eth1"}));
  here_.directory("/run/tcpx");
  EXPECT_EQ(data(), Names{"eth1"});
  EXPECT_EQ(nic_facts(here_.machine(), addresses_).others, (Names{"ens7", "eth0 (default route)"}));
  here_.variable(kIfname, "ens7,eth1");  // up or not
  EXPECT_EQ(data(), (Names{"ens7", "eth1"}));
}

TEST_F(DoctorNicFacts, BridgesAreLocalUnlessSomebodyNamesThem) {
  here_.directory("/sys/class/net/docker0/bridge");
  addresses_.push_back(
      {.name = "docker0", .address = resolve("172.17.0.1", 0)->front(), .up = true, .loopback = false, .link_local = false});
  EXPECT_TRUE(nic_facts(here_.machine(), addresses_).data[0].is_local);
  here_.variable(kIfname, "docker0");
  EXPECT_FALSE(nic_facts(here_.machine(), addresses_).data[0].is_local);
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
