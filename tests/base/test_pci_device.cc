// Against a small copy of a sysfs tree.
#include "base/pci_device.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace tcpx::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGpu = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";

class PciDevice : public ::testing::Test {
 protected:
  PciDevice() {
    make_folder(kGpu);
    make_folder("/sys/bus/pci/devices");
    fs::create_symlink("../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0", root() + "/sys/bus/pci/devices/0000:3b:00.0");
  }
  std::string root() const { return tree_.path(); }
  void make_folder(const std::string& path) { fs::create_directories(root() + path); }
  void write_node(const std::string& folder, const char* text) { std::ofstream(root() + folder + "/numa_node") << text; }

 private:
  TemporaryDirectory tree_;
};

TEST_F(PciDevice, TheLinkOfABusIdIsResolved) {
  const std::string resolved = fs::canonical(root()).string() + kGpu;
  EXPECT_EQ(find_pci_path("0000:3b:00.0", root()), resolved);
  EXPECT_EQ(find_pci_path("0000:3B:00.0", root()), resolved) << "as CUDA writes it";
}

TEST_F(PciDevice, WhatIsNoDeviceHasNoPath) {
  for (const char* id : {"", "0000:3c:00.0", "/", "0000:3b:00.0/", "../devices/0000:3b:00.0"}) {
    EXPECT_EQ(find_pci_path(id, root()), std::nullopt) << id;
  }
  EXPECT_EQ(find_pci_path("0000:3b:00.0", root() + "/no-such-root"), std::nullopt);
}

TEST_F(PciDevice, ALocationEndsInABusId) {
  EXPECT_EQ(bus_id_of(kGpu), "0000:3b:00.0");
  EXPECT_EQ(bus_id_of("0000:3b:00.0"), "0000:3b:00.0");
  EXPECT_EQ(bus_id_of(""), "");
}

TEST_F(PciDevice, TheNodeStandsBesideTheDevice) {
  EXPECT_EQ(read_numa_node(kGpu, root()), -1) << "no file";
  write_node(kGpu, "1\n");
  EXPECT_EQ(read_numa_node(kGpu, root()), 1);
  EXPECT_EQ(read_numa_node(std::string(kGpu) + "/", root()), 1);
  write_node(kGpu, "-1\n");
  EXPECT_EQ(read_numa_node(kGpu, root()), -1);
  write_node(kGpu, "-7\n");
  EXPECT_EQ(read_numa_node(kGpu, root()), -1);
  write_node(kGpu, "none\n");
  EXPECT_EQ(read_numa_node(kGpu, root()), -1);
}

TEST_F(PciDevice, ADeviceBelowItsFunctionHasTheNodeOfTheFunction) {
  write_node(kGpu, "3\n");
  make_folder(std::string(kGpu) + "/virtio1");
  EXPECT_EQ(read_numa_node(std::string(kGpu) + "/virtio1", root()), 3);
}

TEST_F(PciDevice, PathsThatLeadNowhereHaveNoNode) {
  for (const char* path : {"", "/", "//", "x", "no/such/device", "/sys/devices/virtual/net/lo"}) {
    EXPECT_EQ(read_numa_node(path, root()), -1) << path;
  }
}

}  // namespace
}  // namespace tcpx::testing
