#include "net/vendor_traps.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace tcpx {
namespace {

using Names = std::vector<std::string>;

soft::InterfaceAddress address(const std::string& name, const std::string& host) {
  return {.name = name,
          .address = resolve(host, 0)->front(),
          .up = name != "eth9",
          .loopback = name == "lo",
          .link_local = host.starts_with("fe80")};
}

std::vector<soft::InterfaceAddress> machine(const Names& names) {
  std::vector<soft::InterfaceAddress> all;
  for (const std::string& name : names) all.push_back(address(name, name == "lo" ? "127.0.0.1" : "10.0.0.2"));
  return all;
}

std::optional<Names> chosen(const std::vector<soft::InterfaceAddress>& all, const std::string& pattern, bool names_peer = false) {
  return vendor_interfaces(all, {.interfaces = pattern, .names_peer = names_peer});
}

TEST(VendorTraps, A5_InterfacesAreThoseThatThePluginTakes) {
  const auto all = machine({"lo", "eth1", "eth0", "eth9", "docker0"});
  EXPECT_EQ(chosen(all, ""), (Names{"eth0", "eth1", "eth9"})) << "it does not ask whether they are up";
  EXPECT_EQ(chosen(all, "x"), (Names{"eth0", "eth1", "eth9"})) << "it takes one character for none";
  EXPECT_EQ(chosen(all, "", true), std::nullopt) << "a subnet decides";
  EXPECT_EQ(chosen(all, "eth1,docker"), (Names{"docker0", "eth1"}));
  EXPECT_EQ(chosen(all, "=eth1,eth1,eth"), Names{"eth1"});
  EXPECT_EQ(chosen(all, "^eth"), (Names{"docker0", "lo"}));
  EXPECT_EQ(chosen(all, "eth1:80"), std::nullopt) << "it reads a port there";
  EXPECT_EQ(chosen(machine({"lo", "eth0", "ib0"}), "", true), Names{"ib0"});
  EXPECT_EQ(chosen(machine({"lo", "docker0"}), ""), Names{"docker0"});
  EXPECT_EQ(chosen(machine({"lo"}), ""), Names{"lo"});
  EXPECT_EQ(chosen({address("lo", "::1"), address("eth0", "fe80::1")}, "=lo,eth0"), Names{"eth0"});
}

class VendorCores : public ::testing::Test {
 protected:
  void machine(const std::string& node, const std::string& list0, const std::string& list1 = "") {
    root_.write("/sys/class/net/eth1/device/numa_node", node + '\n');
    root_.write("/sys/devices/system/node/node0/cpulist", list0 + '\n');
    if (!list1.empty()) root_.write("/sys/devices/system/node/node1/cpulist", list1 + '\n');
  }
  std::string trap(const VendorSettings& settings = {}) const {
    const auto found = find_cores_trap(root_.path(), "eth1", settings);
    return found ? found->found + "|" + found->why + "|" + found->mend : "";
  }

  testing::TemporaryDirectory root_;
};

TEST_F(VendorCores, A5_TheFirstCharacterChoosesOneOfTwoNodes) {
  EXPECT_EQ(trap(), "") << "no device, no node: all cores";
  machine("0", "0-7");
  EXPECT_EQ(trap(), "");
  for (const char* node : {"1", "-1", "2", "13"}) {
    machine(node, "0-7");
    EXPECT_NE(trap().find("node1/cpulist, and there is none"), std::string::npos) << node;
    EXPECT_NE(trap().find("|echo 0 | sudo tee /sys/class/net/eth1/device/numa_node"), std::string::npos) << node;
  }
  machine("1", "0-7", "8-15");
  EXPECT_EQ(trap(), "");
}

TEST_F(VendorCores, A5_OnlyRangesAtTheBeginOfAListCount) {
  for (const char* list : {"0-7", "0-51,104-155", "0-7,9", "0-0", "0-1,2-3,4-5,6-7,8-9,10-11,12-13,14-15"}) {
    machine("0", list);
    EXPECT_EQ(trap(), "") << list;
  }
  for (const char* list : {"0", "0,2-7", ""}) {
    machine("0", list);
    EXPECT_NE(trap().find("reads as 0 ranges"), std::string::npos) << list;
    EXPECT_NE(trap().find("divides by zero"), std::string::npos) << list;
  }
  machine("0", "0-1,2-3,4-5,6-7,8-9,10-11,12-13,14-15,16-17");
  EXPECT_NE(trap().find("has room for 8"), std::string::npos);
  EXPECT_NE(trap({.send_cores = "eth1:0-1", .receive_cores = "eth1:0-1"}), "") << "it writes before it reads the variables";
}

TEST_F(VendorCores, A5_BindingsOfBothDirectionsTakeTheListsPlace) {
  machine("0", "3");
  EXPECT_EQ(trap({.send_cores = "eth0:1;eth1:3-3", .receive_cores = "eth1:3-3;"}), "");
  EXPECT_NE(trap({.send_cores = "eth1:3-3"}), "") << "the other direction has none";
  EXPECT_NE(trap({.send_cores = "eth10:3-3", .receive_cores = "eth1:3-3"}), "") << "another interface";
  machine("0", "0-7");
  EXPECT_NE(trap({.receive_cores = "eth1:5"}).find("NCCL_GPUDIRECTTCPX_RX_BINDINGS gives eth1 0 ranges"), std::string::npos);
}

TEST(VendorTraps, A5_OnlyAPciAddressOfDomain0Serves) {
  const std::string good = "/sys/devices/pci0000:00/0000:06:00.0";
  EXPECT_FALSE(find_pci_trap("eth1", good).has_value());
  for (const std::string& path : {std::string(), good + "/virtio1", std::string("/sys/devices/pci0001:00/0001:06:00.0"),
                                  std::string("/sys/devices/virtual/net/veth0")}) {
    EXPECT_TRUE(find_pci_trap("eth1", path).has_value()) << path;
  }
  EXPECT_EQ(find_pci_trap("eth1", std::nullopt)->found, "eth1 is no PCI device");
}

TEST(VendorTraps, A5_WhatIsRefusedSaysWhatToDo) {
  const Status status = check_vendor_machine("/nowhere", machine({"lo", "eth0"}), {.control = "eth7"}, "load net plugin");
  EXPECT_EQ(status.code(), Code::kBadConfig);
  EXPECT_NE(status.detail().find("NCCL_GPUDIRECTTCPX_CTRL_DEV=eth7 names no interface with an address. "), std::string::npos);
  EXPECT_NE(status.detail().find("Mend: export NCCL_GPUDIRECTTCPX_CTRL_DEV="), std::string::npos);
  EXPECT_TRUE(check_vendor_machine("/nowhere", machine({"lo", "eth0"}), {.control = "eth"}, "load net plugin").is_ok())
      << "a prefix does";
}

}  // namespace
}  // namespace tcpx
