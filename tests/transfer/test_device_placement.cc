// Distance of two devices, and choice of those for the channels of a GPU.
#include "transfer/device_placement.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

DeviceLocation at(const char* path, int numa_node = -1) {
  return {.pci_path = path, .numa_node = numa_node};
}

struct DistanceCase {
  const char* what;
  DeviceLocation a, b;
  PciDistance expected;
};

const std::vector<DistanceCase> kDistances = {
    {"one bridge", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.1"), PciDistance::kSameSwitch},
    {"downstream ports of one switch", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:00.0/0000:05:00.0"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:01.0/0000:06:00.0"), PciDistance::kSameSwitch},
    {"a switch behind a switch", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:00.0/0000:05:00.0"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:01.0/0000:06:00.0/0000:07:00.0/0000:08:00.0"),
     PciDistance::kBridges},
    {"two switches behind one root port", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:00.0/0000:05:00.0"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.1/0000:08:00.0/0000:09:00.0"), PciDistance::kBridges},
    {"root ports of one host bridge", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0"),
     at("/sys/devices/pci0000:00/0000:00:03.0/0000:04:00.0"), PciDistance::kHostBridge},
    {"no bridge but the host's, as in many virtual machines", at("/sys/devices/pci0000:00/0000:00:05.0"),
     at("/sys/devices/pci0000:00/0000:00:04.0"), PciDistance::kHostBridge},
    {"the path goes before the NUMA nodes", at("/sys/devices/pci0000:00/0000:00:05.0", 0),
     at("/sys/devices/pci0000:00/0000:00:04.0", 1), PciDistance::kHostBridge},
    {"host bridges of one node", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0", 0),
     at("/sys/devices/pci0000:80/0000:80:02.0/0000:83:00.0", 0), PciDistance::kSameNode},
    {"two nodes", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0", 0),
     at("/sys/devices/pci0000:80/0000:80:02.0/0000:83:00.0", 1), PciDistance::kOtherNode},
    {"two host bridges and a node unknown", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0", 0),
     at("/sys/devices/pci0000:80/0000:80:02.0/0000:83:00.0"), PciDistance::kUnknown},
    {"domains that differ", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0", 0),
     at("/sys/devices/pci0001:00/0001:00:02.0/0001:03:00.0", 0), PciDistance::kSameNode},
    {"host bridges of the same name under two platforms", at("/sys/devices/platform/soc/a.pcie/pci0000:00/0000:00:01.0", 0),
     at("/sys/devices/platform/soc/b.pcie/pci0000:00/0000:00:01.0", 0), PciDistance::kSameNode},
    {"a long domain", at("/sys/devices/pci10000:e0/10000:e0:06.0/10000:e1:00.0"),
     at("/sys/devices/pci10000:e0/10000:e0:06.0/10000:e2:00.0"), PciDistance::kSameSwitch},
    {"a virtual function beside a GPU", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:01.0/0000:06:10.3"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:00.0/0000:05:00.0"), PciDistance::kSameSwitch},
    {"a virtual function on a bus of its own", at("/sys/devices/pci0000:00/0000:00:02.0/0000:04:02.1"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0"), PciDistance::kSameSwitch},
    {"trailing slash", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:04:00.0"), PciDistance::kSameSwitch},
    {"what hangs below the function does not count", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/virtio1/net/eth0"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:04:00.0"), PciDistance::kSameSwitch},
    {"a device and itself", at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0"),
     at("/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0"), PciDistance::kSameSwitch},
    {"no paths, one node", {.numa_node = 1}, {.numa_node = 1}, PciDistance::kSameNode},
    {"nothing known", {}, {}, PciDistance::kUnknown},
    {"one path only, one node", at("/sys/devices/pci0000:00/0000:00:05.0", 0), {.numa_node = 0}, PciDistance::kSameNode},
};

TEST(PciDistance, FollowsTheTree) {
  for (const DistanceCase& c : kDistances) {
    EXPECT_EQ(name_of(pci_distance(c.a, c.b)), name_of(c.expected)) << c.what;
    EXPECT_EQ(name_of(pci_distance(c.b, c.a)), name_of(c.expected)) << c.what << ", the other way";
  }
}

TEST(PciDistance, MalformedPathsAreNoPaths) {
  const char* good = "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0";
  for (const char* path : {"",
                           "/",
                           "///",
                           "garbage",
                           "0000:03:00.0",
                           "/0000:00:02.0/0000:03:00.0",
                           "/sys/devices/virtual/net/lo",
                           "/sys/devices/pci0000:00",
                           "/sys/devices/pci0000:00/",
                           "/sys/devices/pci0000:00/garbage/0000:03:00.0",
                           "/sys/devices/pci0000:00/0000:00:02",
                           "/sys/devices/pci0000:00/0000:00:02.",
                           "/sys/devices/pci0000:00/0000:00:02.g",
                           "/sys/devices/pci0000:00/000:00:02.0",
                           "/sys/devices/pci0000:00/0000:0:02.0",
                           "/sys/devices/pci0000:00/ 0000:00:02.0",
                           "/sys/devices/pci0000/0000:00:02.0",
                           "/sys/devices/pcix000:00/0000:00:02.0",
                           "/sys/devices/pci0000:00x/0000:00:02.0",
                           "/sys/devices/pci:/:::."}) {
    EXPECT_EQ(pci_distance(at(path), at(good)), PciDistance::kUnknown) << path;
    EXPECT_EQ(pci_distance(at(path), at(path)), PciDistance::kUnknown) << path;
    EXPECT_EQ(pci_distance(at(path, 0), at(good, 1)), PciDistance::kOtherNode) << path << ": the node is still known";
  }
}

TEST(PciDistance, NamesAreThoseOfNccl) {
  EXPECT_EQ(name_of(PciDistance::kSameSwitch), "PIX");
  EXPECT_EQ(name_of(PciDistance::kBridges), "PXB");
  EXPECT_EQ(name_of(PciDistance::kHostBridge), "PHB");
  EXPECT_EQ(name_of(PciDistance::kSameNode), "NODE");
  EXPECT_EQ(name_of(PciDistance::kOtherNode), "SYS");
  EXPECT_EQ(name_of(PciDistance::kUnknown), "unknown");
}

// A host like A3: four switches, two on each NUMA node and each below a host bridge of its own, with two GPUs and one NIC each.
constexpr const char* kSwitch[] = {
    "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0",
    "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0",
    "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0",
    "/sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0",
};

DeviceLocation behind_switch(int index, const char* port_and_function) {
  return {.pci_path = std::string(kSwitch[index]) + port_and_function, .numa_node = index / 2};
}
DeviceLocation gpu(int index) {
  return behind_switch(index / 2, index % 2 == 0 ? "/0000:02:00.0/0000:03:00.0" : "/0000:02:01.0/0000:04:00.0");
}
std::vector<DeviceLocation> nics() {
  std::vector<DeviceLocation> all;
  for (int i = 0; i < 4; ++i) all.push_back(behind_switch(i, "/0000:02:02.0/0000:05:00.0"));
  return all;
}

using Devices = std::vector<int>;

TEST(PlaceChannels, EachGpuOfAnA3HostHasItsSwitchFirstThenItsNode) {
  const Devices expected[] = {{0, 1, 2, 3}, {0, 1, 2, 3}, {1, 0, 2, 3}, {1, 0, 2, 3},
                              {2, 3, 0, 1}, {2, 3, 0, 1}, {3, 2, 0, 1}, {3, 2, 0, 1}};
  for (int i = 0; i < 8; ++i) {
    const Devices& all = expected[i];
    EXPECT_EQ(place_channels(gpu(i), nics(), 4), all) << i;
    EXPECT_EQ(place_channels(gpu(i), nics(), 0), all) << i << ": one for each device";
    EXPECT_EQ(place_channels(gpu(i), nics(), 1), Devices({all[0]})) << i;
    EXPECT_EQ(place_channels(gpu(i), nics(), 2), Devices({all[0], all[1]})) << i << ": its node's";
    EXPECT_EQ(place_channels(gpu(i), nics(), 6), Devices({all[0], all[1], all[2], all[3], all[0], all[1]}))
        << i << ": round again";
  }
}

TEST(NearestDevices, A1_EachGpuOfAnA3HostHasOneNic) {
  for (int i = 0; i < 8; ++i) EXPECT_EQ(nearest_devices(gpu(i), nics()), Devices({i / 2})) << i;
}

TEST(NearestDevices, AllThatAreEquallyNear) {
  std::vector<DeviceLocation> twice = nics();
  twice.push_back(behind_switch(2, "/0000:02:03.0/0000:06:00.0"));
  EXPECT_EQ(nearest_devices(gpu(4), twice), Devices({2, 4}));
  EXPECT_EQ(nearest_devices({}, nics()), Devices({0, 1, 2, 3})) << "nothing is known of the GPU";
  EXPECT_EQ(nearest_devices(gpu(0), {}), Devices());
}

TEST(PlaceChannels, EquallyNearDevicesKeepTheirOrder) {
  const std::vector<DeviceLocation> unknown(4);
  EXPECT_EQ(place_channels({}, unknown, 0), Devices({0, 1, 2, 3})) << "no GPU, interfaces without a device";
  EXPECT_EQ(place_channels({}, nics(), 0), Devices({0, 1, 2, 3})) << "no GPU";
  EXPECT_EQ(place_channels(gpu(5), unknown, 0), Devices({0, 1, 2, 3}));
  EXPECT_EQ(place_channels({.numa_node = 1}, nics(), 3), Devices({2, 3, 0})) << "a GPU of which only the node is known";
}

TEST(PlaceChannels, UnknownDevicesComeLast) {
  std::vector<DeviceLocation> mixed = nics();
  mixed[0] = {};
  mixed[2] = at("garbage");
  EXPECT_EQ(place_channels(gpu(0), mixed, 0), Devices({1, 3, 0, 2}));
}

TEST(PlaceChannels, EveryDistanceHasItsPlace) {
  const DeviceLocation near = at("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", 0);
  const std::vector<DeviceLocation> far_to_near = {
      {},
      at("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1),
      at("/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0", 0),
      at("/sys/devices/pci0000:00/0000:00:02.0/0000:09:00.0", 0),
      at("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0/0000:05:00.0/0000:06:00.0", 0),
      at("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:07:00.0", 0),
  };
  EXPECT_EQ(place_channels(near, far_to_near, 0), Devices({5, 4, 3, 2, 1, 0}));
}

TEST(PlaceChannels, AutomaticIsBoundedAndNoDeviceIsNoChannel) {
  const std::vector<DeviceLocation> many(kMaxChannels + 5);
  const Devices placed = place_channels({}, many, 0);
  ASSERT_EQ(placed.size(), kMaxChannels);
  EXPECT_EQ(placed.back(), static_cast<int>(kMaxChannels) - 1);
  EXPECT_EQ(place_channels({}, {}, 0), Devices());
  EXPECT_EQ(place_channels({}, {}, 4), Devices());
  const std::vector<DeviceLocation> one(1);
  EXPECT_EQ(place_channels({}, one, kMaxChannels), Devices(kMaxChannels, 0));
}

}  // namespace
}  // namespace tcpx
