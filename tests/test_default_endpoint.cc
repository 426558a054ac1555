// What the endpoint makes of a plugin's devices and the machine's GPUs.
#include "transfer/default_endpoint.h"

#include <gtest/gtest.h>

#include "tests/support/fake_net_plugin.h"
#include "tests/support/hidden_memory_ops.h"
#include "transfer/device_placement.h"

namespace tcpx::testing {
namespace {

/// As many devices as it has paths.
class PlacedPlugin final : public FakeNetPlugin {
 public:
  explicit PlacedPlugin(std::vector<std::optional<std::string>> paths) : paths_(std::move(paths)) {}
  Result<int> device_count() override { return static_cast<int>(paths_.size()); }
  Result<DeviceProperties> properties(int dev) override {
    if (paths_.at(static_cast<size_t>(dev)) == "refused") return plugin_refused("properties", "told by the test");
    DeviceProperties properties;
    properties.pci_path = paths_[static_cast<size_t>(dev)];
    return properties;
  }

 private:
  const std::vector<std::optional<std::string>> paths_;
};

// Nothing of a domain like this is in this machine's sysfs.
constexpr const char* kGpu = "/sys/devices/pcifffe:00/fffe:00:01.0/fffe:01:00.0";
constexpr const char* kBesideGpu = "/sys/devices/pcifffe:00/fffe:00:01.0/fffe:02:00.0";
constexpr const char* kSameHostBridge = "/sys/devices/pcifffe:00/fffe:00:02.0/fffe:03:00.0";

class PlacedGpu final : public HiddenMemoryOps {
 public:
  std::optional<std::string> pci_path(int device) const override { return device == 0 ? std::optional(kGpu) : std::nullopt; }
};

DefaultEndpoint endpoint() {
  return {.memory = make_host_memory_ops(), .plugin = std::make_shared<FakeNetPlugin>(), .plugin_path = "fake"};
}

DefaultEndpoint placed_endpoint(std::vector<std::optional<std::string>> paths) {
  return {
      .memory = std::make_unique<PlacedGpu>(), .plugin = std::make_shared<PlacedPlugin>(std::move(paths)), .plugin_path = "fake"};
}

TEST(DefaultEndpoint, DevicesNearTheGpuServeItFirst) {
  DefaultEndpoint placed = placed_endpoint({std::nullopt, kSameHostBridge, kBesideGpu});
  EXPECT_EQ(placed.channel_devices(0, 0).value(), std::vector<int>({2, 1, 0}));
  EXPECT_EQ(placed.channel_devices(0, 4).value(), std::vector<int>({2, 1, 0, 2}));
}

TEST(DefaultEndpoint, APluginWithoutDevicesOrWithoutAnswersIsAnError) {
  EXPECT_EQ(placed_endpoint({}).channel_devices(0, 0).status().code(), Code::kNotFound);
  EXPECT_EQ(placed_endpoint({kGpu, "refused"}).channel_devices(0, 1).status().code(), Code::kPlugin);
}

TEST(DefaultEndpoint, ChannelsGoRoundThePluginsDevices) {
  DefaultEndpoint one = endpoint();
  EXPECT_EQ(one.channel_devices(0, 0).value(), std::vector<int>({0}));
  EXPECT_EQ(one.channel_devices(0, 3).value(), std::vector<int>({0, 0, 0}));
  EXPECT_EQ(one.channel_devices(0, kMaxChannels).value().size(), kMaxChannels);
}

TEST(DefaultEndpoint, ChannelsThatCannotBeAreRefused) {
  DefaultEndpoint one = endpoint();
  for (const int gpu : {-1, 1}) {
    const auto refused = one.channel_devices(gpu, 1);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << gpu;
    EXPECT_NE(refused.status().detail().find("no GPU"), std::string::npos) << refused.status().to_string();
  }
  EXPECT_EQ(one.channel_devices(0, kMaxChannels + 1).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx::testing
