// The endpoint's mapping of a plugin's devices to the machine's GPUs.
#include "transfer/local_machine.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/text.h"
#include "tests/support/expect_log.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/ok.h"
#include "transfer/device_placement.h"

namespace tcpx::testing {
namespace {

/// One device per path, named eth1, eth2, ...
class PlacedPlugin final : public FakeNetPlugin {
 public:
  explicit PlacedPlugin(std::vector<std::optional<std::string>> paths, bool steers = false)
      : FakeNetPlugin(Options{.steers = steers}), paths_(std::move(paths)) {}
  Result<int> device_count() override { return static_cast<int>(paths_.size()); }
  Result<DeviceProperties> properties(int dev) override {
    if (paths_.at(static_cast<size_t>(dev)) == "refused") return plugin_refused("properties", "told by the test");
    DeviceProperties properties;
    properties.name = concat("eth", dev + 1);
    properties.pci_path = paths_[static_cast<size_t>(dev)];
    return properties;
  }

 private:
  const std::vector<std::optional<std::string>> paths_;
};

// A PCI domain that does not exist in this machine's sysfs.
constexpr const char* kGpu = "/sys/devices/pcifffe:00/fffe:00:01.0/fffe:01:00.0";
constexpr const char* kBesideGpu = "/sys/devices/pcifffe:00/fffe:00:01.0/fffe:02:00.0";
constexpr const char* kSameHostBridge = "/sys/devices/pcifffe:00/fffe:00:02.0/fffe:03:00.0";

class PlacedGpu final : public HiddenMemoryOps {
 public:
  std::optional<std::string> pci_path(int device) const override { return device == 0 ? std::optional(kGpu) : std::nullopt; }
};

// An A3 machine as in its preset in RxDM (google/tcpgpudmarxd: src/a3vm_gpu_rxq_configurator.cc): four switches, each
// with two GPUs and one NIC.
std::string behind_switch(int number, int port) {
  return concat("/sys/devices/pcifff", number, ":00/fff", number, ":00:01.0/fff", number, ":01:00.0/fff", number, ":02:0", port,
                ".0/fff", number, ":0", 3 + port, ":00.0");
}
class A3Gpus final : public HiddenMemoryOps {
 public:
  int device_count() const override { return 8; }
  std::optional<std::string> pci_path(int device) const override { return behind_switch(device / 2, device % 2); }
};
LocalMachine a3(bool steers) {
  std::vector<std::optional<std::string>> nics;
  for (int number = 0; number < 4; ++number) nics.emplace_back(behind_switch(number, 2));
  return {.memory = std::make_unique<A3Gpus>(),
          .plugin = std::make_shared<PlacedPlugin>(std::move(nics), steers),
          .plugin_path = "fake"};
}
using Devices = std::vector<int>;

LocalMachine endpoint() {
  return {.memory = make_host_memory_ops(), .plugin = std::make_shared<FakeNetPlugin>(), .plugin_path = "fake"};
}

LocalMachine placed_endpoint(std::vector<std::optional<std::string>> paths) {
  return {
      .memory = std::make_unique<PlacedGpu>(), .plugin = std::make_shared<PlacedPlugin>(std::move(paths)), .plugin_path = "fake"};
}

TEST(LocalMachine, DevicesNearTheGpuServeItFirst) {
  LocalMachine placed = placed_endpoint({std::nullopt, kSameHostBridge, kBesideGpu});
  EXPECT_EQ(must(placed.channel_devices(0, 0)), std::vector<int>({2, 1, 0}));
  EXPECT_EQ(must(placed.channel_devices(0, 4)), std::vector<int>({2, 1, 0, 2}));
}

TEST(LocalMachine, A1_WithGpudirectTcpxAGpusChannelsShareTheNicBelowItsSwitch) {
  LocalMachine machine = a3(true);
  for (int gpu = 0; gpu < 8; ++gpu) {
    const int own = gpu / 2;
    EXPECT_EQ(must(machine.channel_devices(gpu, 0)), Devices(4, own)) << gpu;
    EXPECT_EQ(must(machine.channel_devices(gpu, 1)), Devices(1, own)) << gpu;
    EXPECT_EQ(must(machine.channel_devices(gpu, 9)), Devices(9, own)) << gpu << ": a larger number is no word for other NICs";
    EXPECT_EQ(must(machine.describe_devices(gpu, Devices(4, own))), concat("eth", own + 1, " (PIX to GPU ", gpu, ")"));
  }
  EXPECT_TRUE(testing::logged("GPU 7 uses eth4, the NIC nearest to it (PIX)"));
}

// Both ends must have as many, so the number of NICs of a host, or of those up, must not matter.
TEST(LocalMachine, A1_TheNumberOfChannelsIsNoAccidentOfTheHost) {
  for (const size_t nics : {1u, 2u, 3u}) {
    LocalMachine machine{
        .memory = std::make_unique<PlacedGpu>(),
        .plugin = std::make_shared<PlacedPlugin>(std::vector<std::optional<std::string>>(nics, std::string(kBesideGpu)), true),
        .plugin_path = "fake"};
    EXPECT_EQ(must(machine.channel_devices(0, 0)).size(), 4u) << nics;
  }
}

TEST(LocalMachine, A1_OtherNicsTakeAWordAndOtherPluginsTakeThemAll) {
  EXPECT_EQ(must(a3(false).channel_devices(5, 0)), Devices({2, 0, 1, 3})) << "as ever";
  EXPECT_EQ(must(a3(false).describe_devices(5, Devices({2, 0}))), "eth1, eth3");
  ::setenv("UCCL_TCPX_FAR_NICS", "1", 1);
  EXPECT_EQ(must(a3(true).channel_devices(5, 0)), Devices({2, 0, 1, 3}));
  EXPECT_EQ(must(a3(true).describe_devices(5, Devices({2, 0}))), "eth1 (unknown to GPU 5), eth3 (PIX to GPU 5)");
  ::setenv("UCCL_TCPX_FAR_NICS", "yes", 1);
  EXPECT_EQ(a3(true).channel_devices(5, 0).status().code(), Code::kBadConfig);
  ::unsetenv("UCCL_TCPX_FAR_NICS");
}

TEST(LocalMachine, A1_NicsOfWhichNoneIsTheGpusOwnAreRefusedByName) {
  const auto machine = [](std::vector<std::optional<std::string>> nics) {
    return LocalMachine{.memory = std::make_unique<PlacedGpu>(),
                        .plugin = std::make_shared<PlacedPlugin>(std::move(nics), true),
                        .plugin_path = "fake"};
  };
  const auto refused = machine({kSameHostBridge, kSameHostBridge}).channel_devices(0, 0);
  ASSERT_EQ(refused.status().code(), Code::kUnsupported) << refused.status().to_string();
  for (const char* part : {"eth1, eth2", "PHB", "GPU 0", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "UCCL_TCPX_FAR_NICS"})
    EXPECT_NE(refused.status().detail().find(part), std::string::npos) << part << " in " << refused.status().to_string();
  EXPECT_EQ(must(machine({kSameHostBridge}).channel_devices(0, 2)), Devices({0, 0})) << "one NIC is named as the only one";
}

TEST(LocalMachine, APluginWithoutDevicesOrWithoutAnswersIsAnError) {
  EXPECT_EQ(placed_endpoint({}).channel_devices(0, 0).status().code(), Code::kNotFound);
  EXPECT_EQ(placed_endpoint({kGpu, "refused"}).channel_devices(0, 1).status().code(), Code::kPlugin);
}

TEST(LocalMachine, ChannelsGoRoundThePluginsDevices) {
  LocalMachine one = endpoint();
  EXPECT_EQ(must(one.channel_devices(0, 0)), std::vector<int>({0}));
  EXPECT_EQ(must(one.channel_devices(0, 3)), std::vector<int>({0, 0, 0}));
  EXPECT_EQ(must(one.channel_devices(0, kMaxChannels)).size(), kMaxChannels);
}

TEST(LocalMachine, ChannelsThatCannotBeAreRefused) {
  LocalMachine one = endpoint();
  for (const int gpu : {-1, 1}) {
    const auto refused = one.channel_devices(gpu, 1);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << gpu;
    EXPECT_NE(refused.status().detail().find("no GPU"), std::string::npos) << refused.status().to_string();
  }
  EXPECT_EQ(one.channel_devices(0, kMaxChannels + 1).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx::testing
