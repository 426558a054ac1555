// test_device_discovery: which net plugin is in use, why, and the network devices it offers.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.h"
#include "base/words.h"
#include "net/plugin_loader.h"
#include "programs/program.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::programs;  // NOLINT

std::string_view name_of(NetDeviceType type) {
  switch (type) {
    case NetDeviceType::kHost:
      return "host";
    case NetDeviceType::kUnpack:
      return "unpack";
    case NetDeviceType::kUnknown:
      return "unknown";
  }
  return "unknown";
}

std::vector<std::string> memory_kinds(const DeviceProperties& device) {
  std::vector<std::string> kinds;
  if (device.host_memory) kinds.push_back("host");
  if (device.cuda_memory) kinds.push_back("cuda");
  if (device.dma_buf) kinds.push_back("dma-buf");
  return kinds;
}

void print_table(const PluginLoader::Loaded& loaded, const std::vector<DeviceProperties>& devices) {
  std::printf("net plugin %s, ABI v%d, %s (%s)\n\n", loaded.plugin->name().c_str(), loaded.plugin->abi_version(),
              loaded.source.path.c_str(), loaded.source.reason.c_str());
  std::printf("%3s  %-16s %12s  %-18s %-10s %7s %6s %6s  %s\n", "dev", "name", "speed", "memory", "type", "latency", "comms",
              "recvs", "pci path");
  for (size_t dev = 0; dev < devices.size(); ++dev) {
    const DeviceProperties& device = devices[dev];
    const std::string kinds = joined(memory_kinds(device), " ");
    std::printf(
        "%3zu  %-16s %7d Mb/s  %-18s %-10s %4.0f us %6d %6d  %s\n", dev, device.name.c_str(), device.speed_mbps,
        kinds.empty() ? "-" : kinds.c_str(), concat(name_of(device.net_device_type), " v", device.net_device_version).c_str(),
        static_cast<double>(device.latency_us), device.max_comms, device.max_recvs, device.pci_path.value_or("-").c_str());
  }
  std::printf("\n");
}

nlohmann::json to_json(const DeviceProperties& device, size_t dev) {
  nlohmann::json json = {{"dev", dev},
                         {"name", device.name},
                         {"pci_path", nullptr},
                         {"guid", device.guid},
                         {"speed_mbps", device.speed_mbps},
                         {"port", device.port},
                         {"latency_us", device.latency_us},
                         {"max_comms", device.max_comms},
                         {"max_recvs", device.max_recvs},
                         {"memory", memory_kinds(device)},
                         {"type", name_of(device.net_device_type)},
                         {"type_version", device.net_device_version}};
  if (device.pci_path) json["pci_path"] = *device.pci_path;
  return json;
}

void print_json(const PluginLoader::Loaded& loaded, const std::vector<DeviceProperties>& devices) {
  nlohmann::json json = {{"version", TCPX_VERSION},
                         {"plugin",
                          {{"name", loaded.plugin->name()},
                           {"abi", loaded.plugin->abi_version()},
                           {"path", loaded.source.path},
                           {"reason", loaded.source.reason}}},
                         {"devices", nlohmann::json::array()}};
  for (size_t dev = 0; dev < devices.size(); ++dev) json["devices"].push_back(to_json(devices[dev], dev));
  // Names come from the plugin and need not be UTF-8.
  std::puts(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Says which net plugin is in use and lists its network devices.\n"
      "Exit code: 0 passed, 1 failed, 2 usage, 77 skipped (no device).");
  bool as_json = false;
  app.add_flag("--json", as_json, "print JSON and nothing else");
  end_on_interrupt();
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;

  if (const auto settings = program_settings(); !settings.is_ok()) return failed(settings.status());
  const auto loaded = PluginLoader::load();
  if (!loaded.is_ok()) return failed(loaded.status());
  const auto count = loaded->plugin->device_count();
  if (!count.is_ok()) return failed(count.status());
  std::vector<DeviceProperties> devices;
  for (int dev = 0; dev < *count; ++dev) {
    auto properties = loaded->plugin->properties(dev);
    if (!properties.is_ok()) return failed(properties.status());
    devices.push_back(std::move(*properties));
  }
  if (as_json) {
    print_json(*loaded, devices);
    return devices.empty() ? kExitSkipped : kExitPassed;
  }
  print_table(*loaded, devices);
  if (devices.empty()) return skipped(concat("net plugin ", loaded->plugin->name(), " offers no network device"));
  return passed(concat(devices.size(), devices.size() == 1 ? " device" : " devices"));
}
