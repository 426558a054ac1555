// Verdicts on network interfaces: of an A3-like machine, whole and broken, of a plain virtual machine, of a container.
#include <gtest/gtest.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/netlink.h"
#include "base/socket_io.h"
#include "doctor/nic.h"
#include "tests/support/doctor_fixture.h"
#include "tests/support/own_network.h"

namespace tcpx::doctor {
namespace {

using testing::in_own_network;
using testing::MadeUpMachine;
using enum Verdict;

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
          .gpu_distance = PciDistance::kSameSwitch,
          .ethtool = {.data_split = true,
                      .split_threshold = 0,
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
const testing::Checks<NicFacts> kNics{check_nics};
using Case = testing::Checks<NicFacts>::Case;

/// A change of the first interface, and the verdict that it brings.
Case nic_case(const std::string& check, Verdict verdict, std::function<void(Nic&)> change) {
  return {check, verdict, [change](NicFacts& facts) { change(facts.data[0]); }};
}

TEST(DoctorNics, AnA3NeedsAllOfIt) {
  EXPECT_EQ(kNics.worst(a3()), kOk);
  kNics.expect_ok(a3(), {"link[eth3]", "driver[eth3]", "speed[eth3]", "mtu[eth3]", "address[eth3]", "pci[eth3]", "cores[eth3]",
                         "header_split[eth3]", "ntuple[eth3]", "rx_queues[eth3]", "rx_devmem_pkts[eth3]"});
  const auto flags = [](bool strict) {
    return [=](Nic& nic) {
      nic.ethtool.data_split.reset();
      nic.ethtool.private_flags = {
          {"report-stats", false}, {"enable-header-split", true}, {"enable-strict-header-split", strict}};
    };
  };
  const auto counts = [](const char* statistic, uint32_t rules) {
    return [=](Nic& nic) { nic.ethtool.statistics = {{statistic, 0}}, nic.ethtool.ntuple_rules = rules; };
  };
  const VendorTrap trap{.found = "x", .why = "y", .mend = "z"};
  kNics.expect(a3(), {nic_case("link[eth1]", kFail, [](Nic& nic) { nic.state = "down"; }),
                      nic_case("driver[eth1]", kFail, [](Nic& nic) { nic.driver = "virtio_net"; }),
                      nic_case("speed[eth1]", kWarn, [](Nic& nic) { nic.speed_mbps = 50'000; }),
                      nic_case("speed[eth1]", kNotApplicable, [](Nic& nic) { nic.speed_mbps.reset(); }),
                      nic_case("mtu[eth1]", kFail, [](Nic& nic) { nic.mtu = 1460; }),
                      nic_case("mtu[eth1]", kFail, [](Nic& nic) { nic.mtu = 2100; }),  // 4 MiB / 2048 bytes = 2048 fragments
                      nic_case("mtu[eth1]", kWarn, [](Nic& nic) { nic.mtu = 2102; }),
                      nic_case("mtu[eth1]", kWarn, [](Nic& nic) { nic.mtu = 8896; }),
                      nic_case("address[eth1]", kFail, [](Nic& nic) { nic.addresses.clear(); }),
                      nic_case("address[eth1]", kFail, [](Nic& nic) { nic.addresses = {resolve("fd00::1", 0)->front()}; }),
                      nic_case("pci[eth1]", kFail, [&](Nic& nic) { nic.pci_trap = trap; }),
                      nic_case("pci[eth1]", kWarn, [](Nic& nic) { nic.gpu_distance = PciDistance::kSameNode; }),
                      nic_case("pci[eth1]", kOk, [](Nic& nic) { nic.gpu_distance = PciDistance::kHostBridge; }),
                      nic_case("cores[eth1]", kFail, [&](Nic& nic) { nic.cores_trap = trap; }),
                      nic_case("header_split[eth1]", kFail, [](Nic& nic) { nic.ethtool.data_split = false; }),
                      nic_case("header_split[eth1]", kNotApplicable, [](Nic& nic) { nic.ethtool.data_split.reset(); }),
                      nic_case("header_split[eth1]", kOk, flags(true)),
                      nic_case("header_split[eth1]", kFail, flags(false)),
                      nic_case("ntuple[eth1]", kFail, [](Nic& nic) { nic.ethtool.ntuple = false; }),
                      nic_case("ntuple[eth1]", kNotApplicable, [](Nic& nic) { nic.ethtool.ntuple.reset(); }),
                      nic_case("rx_queues[eth1]", kFail, [](Nic& nic) { nic.rx_queues = 8; }),
                      nic_case("rx_devmem_pkts[eth1]", kNotApplicable, counts("rx_packets", 2)),
                      nic_case("rx_devmem_pkts[eth1]", kWarn, counts("rx_devmem_pkts", 2)),
                      nic_case("rx_devmem_pkts[eth1]", kOk, counts("rx_devmem_pkts", 0)),
                      {"data_nics", kWarn, [](NicFacts& facts) { facts.data.pop_back(); }},
                      {"data_nics", kFail, [](NicFacts& facts) { facts.data.clear(); }}});
}

TEST(DoctorNics, NothingElseIsSaidOfAnotherDriver) {
  NicFacts facts = a3();
  facts.data[0].driver = "virtio_net";
  EXPECT_EQ(std::ranges::count_if(kNics.all(facts), [](const auto& it) { return it.check.ends_with("[eth1]"); }), 2);
}

TEST(DoctorNics, APlainMachineIsWellWithLess) {
  const auto add_local = [](NicFacts& facts) { facts.data.push_back({.name = "lo", .state = "up", .is_local = true}); };
  EXPECT_EQ(kNics.worst(plain()), kOk);
  kNics.expect(plain(), {nic_case("driver[eth0]", kOk, [](Nic& nic) { nic.driver.clear(); }),
                         nic_case("pci[eth0]", kNotApplicable, [](Nic& nic) { nic.pci.clear(); }),
                         nic_case("link[eth0]", kOk, [](Nic& nic) { nic.state = "unknown"; }),
                         nic_case("link[eth0]", kFail, [](Nic& nic) { nic.state = "down"; }),
                         nic_case("address[eth0]", kFail, [](Nic& nic) { nic.addresses.clear(); }),
                         {"speed[eth0]", kNotApplicable},
                         nic_case("speed[eth0]", kWarn, [](Nic& nic) { nic.speed_mbps = 100; }),
                         nic_case("speed[eth0]", kOk, [](Nic& nic) { nic.speed_mbps = 2500; }),
                         {"tcpx[eth0]", kNotApplicable},
                         nic_case("data_nics", kWarn, [](Nic& nic) { nic.is_local = true; }),  // nobody else is reached
                         {"data_nics", kWarn, add_local},
                         {"data_nics", kFail, [](NicFacts& facts) { facts.data.clear(); }}});
  NicFacts none = plain();
  none.data.clear();
  EXPECT_TRUE(kNics.finding(none, "data_nics").mend.starts_with("ip link set lo up")) << "nobody has named an interface";
  none.named = true;
  EXPECT_TRUE(kNics.finding(none, "data_nics").mend.ends_with("unset NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"));
  NicFacts facts = plain();
  add_local(facts);
  EXPECT_EQ(kNics.finding(facts, "data_nics").mend, "export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==eth0");
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
    interfaces_.push_back({.name = name, .up = true, .addresses = {{resolve(address, 0)->front(), 24}}});
  }
  std::vector<std::string> data() {
    std::vector<std::string> names;
    for (const Nic& nic : nic_facts(here_.machine(), interfaces_).data) names.push_back(nic.name);
    return names;
  }
  using Names = std::vector<std::string>;

  MadeUpMachine here_;
  std::vector<NetworkInterface> interfaces_;
};

TEST_F(DoctorNicFacts, AreReadFromTheTree) {
  const std::string bridge = "/sys/devices/pci0000:00/0000:00:01.0";
  add_nic("eth1", bridge + "/0000:06:00.0/virtio1", "gve", "10.0.1.2");
  here_.pci_device(bridge + "/0000:04:00.0", "0x10de", "0x030200");
  here_.pci_device("/sys/devices/pci0000:80/0000:84:00.0", "0x10de", "0x030200");
  here_.pci_device(bridge + "/0000:07:00.0", "0x10de", "0x020700");  // NVIDIA's, and no GPU
  here_.pci_device(bridge + "/0000:08:00.0", "0x1af4", "0x030000");  // the console's
  const NicFacts facts = nic_facts(here_.machine(), interfaces_);
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
  EXPECT_EQ(nic.gpu_distance, PciDistance::kSameSwitch);
}

TEST_F(DoctorNicFacts, A5_TheVendorsTrapsAreLookedFor) {
  here_.file("/sys/devices/system/node/node0/cpulist", "0-51,104-155");
  add_nic("eth1", "/sys/devices/pci0000:00/0000:06:00.0", "gve", "10.0.1.2");
  EXPECT_FALSE(nic_facts(here_.machine(), interfaces_).data[0].cores_trap.has_value());
  here_.file("/sys/devices/pci0000:00/0000:06:00.0/numa_node", "1");
  EXPECT_TRUE(nic_facts(here_.machine(), interfaces_).data[0].cores_trap.has_value());
  here_.file("/sys/devices/system/node/node1/cpulist", "7");
  here_.variable("NCCL_GPUDIRECTTCPX_TX_BINDINGS", "eth1:7-7").variable("NCCL_GPUDIRECTTCPX_RX_BINDINGS", "eth1:7-7");
  EXPECT_FALSE(nic_facts(here_.machine(), interfaces_).data[0].cores_trap.has_value());
}

TEST_F(DoctorNicFacts, TheInterfacesForDataAreThoseOfThePath) {
  add_nic("eth0", "/sys/devices/pci0000:00/0000:05:00.0", "gve", "10.0.0.2");
  add_nic("eth1", "/sys/devices/pci0000:00/0000:06:00.0", "gve", "10.0.1.2");
  add_nic("ens7", "/sys/devices/pci0000:00/0000:07:00.0", "e1000", "10.0.7.2");
  interfaces_.back().up = false;
  here_.file("/proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\neth1\t0001000A\t0");
  EXPECT_EQ(data(), (Names{"eth0", "eth1"}));
  here_.directory("/run/tcpx");
  EXPECT_EQ(data(), Names{"eth1"});
  EXPECT_EQ(nic_facts(here_.machine(), interfaces_).others, (Names{"ens7", "eth0 (default route)"}));
  here_.variable(kIfname, "ens7,eth1");  // up or not
  EXPECT_EQ(data(), (Names{"ens7", "eth1"}));
}

TEST_F(DoctorNicFacts, ABridgeOfContainersIsNoDataNicUnlessSomebodyNamesIt) {
  here_.directory("/sys/class/net/docker0/bridge");
  interfaces_.push_back(
      {.name = "docker0", .up = true, .addresses = {{resolve("172.17.0.1", 0)->front(), 16}}, .kind = {"bridge", Reach::kHere}});
  EXPECT_EQ(std::ranges::count(data(), "docker0"), 0);
  here_.variable(kIfname, "docker0");
  EXPECT_EQ(data(), Names{"docker0"});
}

// The kernel's answers over netlink, well formed and not

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// `claimed` is written as its length instead of the right one.
Bytes attribute(uint16_t type, const Bytes& payload, std::optional<uint16_t> claimed = {}) {
  Bytes out;
  append_attribute(out, type, payload);
  if (claimed) std::memcpy(out.data(), &*claimed, sizeof *claimed);
  return out;
}

Bytes message(uint32_t sequence, uint16_t type, const Bytes& payload, std::optional<uint32_t> claimed = {}) {
  const auto length = static_cast<uint32_t>(sizeof(nlmsghdr) + payload.size());
  return bytes_of(nlmsghdr{.nlmsg_len = claimed.value_or(length),
                           .nlmsg_type = type,
                           .nlmsg_flags = 0,
                           .nlmsg_seq = sequence,
                           .nlmsg_pid = 0}) +
         payload;
}

Bytes rings(uint8_t split) {
  return attribute(ETHTOOL_A_RINGS_HEADER | NLA_F_NESTED, attribute(ETHTOOL_A_HEADER_DEV_INDEX, bytes_of(uint32_t{3}))) +
         attribute(ETHTOOL_A_RINGS_RX, bytes_of(uint32_t{1024})) + attribute(ETHTOOL_A_RINGS_TCP_DATA_SPLIT, bytes_of(split));
}

TEST(DoctorDataSplit, OnOffAndUnknownAreToldApart) {
  for (const auto& [attributes, split] : std::vector<std::pair<Bytes, std::optional<bool>>>{
           {rings(ETHTOOL_TCP_DATA_SPLIT_ENABLED), true},
           {rings(ETHTOOL_TCP_DATA_SPLIT_DISABLED), false},
           {rings(ETHTOOL_TCP_DATA_SPLIT_UNKNOWN), std::nullopt},
           {rings(77), std::nullopt},
           {attribute(ETHTOOL_A_RINGS_RX, bytes_of(uint32_t{1024})), std::nullopt},
           {attribute(ETHTOOL_A_RINGS_TCP_DATA_SPLIT, bytes_of(uint32_t{2})), std::nullopt},
           {{}, std::nullopt}})
    EXPECT_EQ(data_split_of(attributes), split);
}

TEST(DoctorDataSplit, TheThresholdIsThatOfHeaderSplit) {
  const Bytes threshold = attribute(17, bytes_of(uint32_t{256}));  // ETHTOOL_A_RINGS_HDS_THRESH
  EXPECT_EQ(split_threshold_of(rings(ETHTOOL_TCP_DATA_SPLIT_ENABLED) + threshold), 256u);
  EXPECT_EQ(split_threshold_of(rings(ETHTOOL_TCP_DATA_SPLIT_ENABLED)), std::nullopt);
  EXPECT_EQ(split_threshold_of(attribute(17, bytes_of(uint64_t{256}))), std::nullopt);
}

TEST(DoctorDataSplit, AttributesEndWhereTheyAreMalformed) {
  const Bytes good = attribute(7, bytes_of(uint32_t{1}));
  for (const uint16_t claimed : {0, 3, 9, 65535}) {
    const Bytes bad = attribute(5, bytes_of(uint32_t{1}), claimed);
    EXPECT_EQ(netlink_attribute(bad, 5), std::nullopt) << claimed;
    EXPECT_TRUE(netlink_attribute(good + bad, 7).has_value());
  }
  // The last one may lack its padding.
  Bytes last = attribute(5, Bytes(1));
  last.resize(5);
  EXPECT_EQ(netlink_attribute(last, 5)->size(), 1u);
  EXPECT_EQ(netlink_attribute(last, 6), std::nullopt);
}

TEST(DoctorDataSplit, OnlyTheWholeAnswerToTheQuestionIsOne) {
  const Bytes payload = rings(ETHTOOL_TCP_DATA_SPLIT_ENABLED);
  const Bytes good = message(9, 21, payload);
  ASSERT_TRUE(netlink_payload(good, 9).is_ok());
  EXPECT_EQ(netlink_payload(good, 9)->size(), payload.size());
  EXPECT_FALSE(netlink_payload(good, 8).is_ok());
  EXPECT_EQ(netlink_payload(message(9, NLMSG_ERROR, bytes_of(-19)), 9).status().native(), 19);
  EXPECT_FALSE(netlink_payload(message(9, NLMSG_DONE, payload), 9).is_ok());
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(netlink_payload(std::span(good).first(size), 9).is_ok()) << size;
  for (const uint32_t claimed : {0u, 15u, 0xffffffffu})
    EXPECT_FALSE(netlink_payload(message(9, 21, payload, claimed), 9).is_ok());
  EXPECT_TRUE(netlink_payload(message(9, 21, payload, 16), 9)->empty());
}

// This machine's interfaces

TEST(DoctorEthtool, WhatDoesNotExistAnswersNothing) {
  for (const std::string name : {"", "no-such-nic", "lo-and-a-name-that-is-too-long-for-any"}) {
    const EthtoolAnswers answers = ask_ethtool(name);
    EXPECT_FALSE(answers.data_split || answers.ntuple || answers.ntuple_rules) << name;
    EXPECT_TRUE(answers.private_flags.empty() && answers.statistics.empty()) << name;
  }
}

TEST(DoctorEthtool, LoopbackHasNoFiltersAndDoesNotTellOfItsSplit) {
  EXPECT_EQ(ask_ethtool("lo").ntuple, false);
  EXPECT_EQ(ask_ethtool("lo").data_split, std::nullopt);
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
