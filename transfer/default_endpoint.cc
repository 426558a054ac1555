#include "transfer/default_endpoint.h"

#include <utility>

#include "base/pci_device.h"
#include "base/text.h"
#include "device/unpacker_factory.h"
#include "net/plugin_loader.h"
#include "transfer/device_placement.h"

namespace tcpx {
namespace {

DeviceLocation location_of(std::optional<std::string> pci_path) {
  const int numa_node = pci_path ? read_numa_node(*pci_path) : -1;
  return {.pci_path = std::move(pci_path), .numa_node = numa_node};
}

}  // namespace

Result<DefaultEndpoint> DefaultEndpoint::create(const std::string& plugin_path) {
  PluginLoadOptions options;
  options.path = plugin_path;
  auto loaded = PluginLoader::load(options);
  if (!loaded.is_ok()) return loaded.status();
  return DefaultEndpoint{
      .memory = make_machine_memory_ops(), .plugin = std::move(loaded->plugin), .plugin_path = std::move(loaded->source.path)};
}

Result<std::unique_ptr<Unpacker>> DefaultEndpoint::make_unpacker(UnpackKind kind, int device) {
  return tcpx::make_unpacker(kind, device, *memory);
}

Result<std::vector<int>> DefaultEndpoint::channel_devices(int gpu, uint32_t channels) {
  const auto refused = [](Code code, std::string why) { return Status(code, "choose network devices", std::move(why)); };
  if (gpu < 0 || gpu >= memory->device_count()) {
    return refused(Code::kInvalidArgument, concat("no GPU ", gpu, ": there are ", memory->device_count()));
  }
  if (channels > kMaxChannels) {
    return refused(Code::kInvalidArgument, concat(channels, " channels, at most ", kMaxChannels, " are possible"));
  }
  const Result<int> count = plugin->device_count();
  if (!count.is_ok()) return count.status();
  if (*count <= 0) return refused(Code::kNotFound, concat("plugin ", plugin->name(), " has none"));
  std::vector<DeviceLocation> devices;
  for (int device = 0; device < *count; ++device) {
    Result<DeviceProperties> properties = plugin->properties(device);
    if (!properties.is_ok()) return properties.status();
    devices.push_back(location_of(std::move(properties->pci_path)));
  }
  return place_channels(location_of(memory->pci_path(gpu)), devices, channels);
}

}  // namespace tcpx
