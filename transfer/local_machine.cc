#include "transfer/local_machine.h"

#include <set>
#include <utility>

#include "base/environment.h"
#include "base/log.h"
#include "base/meant_variable.h"
#include "base/pci_device.h"
#include "base/text.h"
#include "base/words.h"
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

Result<LocalMachine> LocalMachine::create(const std::string& plugin_path) {
  warn_of_unknown_variables();
  PluginLoadOptions options;
  options.path = plugin_path;
  TCPX_ASSIGN_OR_RETURN(auto loaded, PluginLoader::load(options));
  return LocalMachine{
      .memory = make_machine_memory_ops(), .plugin = std::move(loaded.plugin), .plugin_path = std::move(loaded.source.path)};
}

bool LocalMachine::is_plugin_embedded() const {
  return plugin_path == kEmbedded;
}

Result<std::unique_ptr<Unpacker>> LocalMachine::make_unpacker(UnpackKind kind, int device) {
  return tcpx::make_unpacker(kind, device, *memory);
}

Result<std::vector<int>> LocalMachine::channel_devices(int gpu, uint32_t channels) {
  const auto refused = [](Code code, std::string why) { return Status(code, "choose network devices", std::move(why)); };
  if (gpu < 0 || gpu >= memory->device_count()) {
    return refused(Code::kInvalidArgument, concat("no GPU ", gpu, ": there are ", memory->device_count()));
  }
  if (channels > kMaxChannels) {
    return refused(Code::kInvalidArgument, concat(channels, " channels, at most ", kMaxChannels, " are possible"));
  }
  TCPX_ASSIGN_OR_RETURN(const int count, plugin->device_count());
  if (count <= 0) return refused(Code::kNotFound, concat("plugin ", plugin->name(), " has none"));
  std::vector<DeviceLocation> devices;
  for (int device = 0; device < count; ++device) {
    TCPX_ASSIGN_OR_RETURN(DeviceProperties properties, plugin->properties(device));
    devices.push_back(location_of(std::move(properties.pci_path)));
  }
  const DeviceLocation at = location_of(memory->pci_path(gpu));
  TCPX_ASSIGN_OR_RETURN(const int64_t far_nics, environment_integer(Variable::kFarNics));
  if (!keeps_to_nearest() || far_nics != 0) return place_channels(at, devices, channels);

  const std::vector<int> nearest = nearest_devices(at, devices);
  const PciDistance distance = pci_distance(at, devices[static_cast<size_t>(nearest.front())]);
  const std::string names = joined(nearest, ", ", [this](int device) { return plugin->properties(device)->name; });
  // RxDM serves a GPU over one NIC. When several NICs are equally near but none is close to the GPU, nothing here tells which it
  // is.
  if (nearest.size() > 1 && distance > PciDistance::kBridges) {
    return refused(Code::kUnsupported, concat("no NIC is GPU ", gpu, "'s own: ", names, " are equally near (", name_of(distance),
                                              "), and RxDM has the flows of a GPU on one NIC. Name that one in ",
                                              environment_info(Variable::kSocketIfname).name, ", or set ",
                                              environment_info(Variable::kFarNics).name, "=1 to use them all"));
  }
  log(LogLevel::kNotice, "GPU ", gpu, " uses ", names, ", the NIC nearest to it (", name_of(distance), "): ", plugin->name(),
      " gets its payload into GPU memory there and nowhere else");
  std::vector<int> placed(channels == 0 ? kSteeredChannels : channels);
  for (size_t i = 0; i < placed.size(); ++i) placed[i] = nearest[i % nearest.size()];
  return placed;
}

Result<std::string> LocalMachine::describe_devices(int gpu, const std::vector<int>& devices) {
  std::set<std::string> names;
  for (const int device : devices) {
    TCPX_ASSIGN_OR_RETURN(DeviceProperties properties, plugin->properties(device));
    std::string name = std::move(properties.name);
    if (keeps_to_nearest()) {
      const PciDistance distance = pci_distance(location_of(memory->pci_path(gpu)), location_of(std::move(properties.pci_path)));
      name += concat(" (", name_of(distance), " to GPU ", gpu, ")");
    }
    names.insert(std::move(name));
  }
  return joined(names);
}

}  // namespace tcpx
