// A machine as the checks read it: its files, its variables, which path it is meant for, and the devices on its PCI bus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "doctor/finding.h"
#include "net/plugin_loader.h"
#include "transfer/device_placement.h"

namespace tcpx::doctor {

/// The directory in which the receive datapath manager has its sockets by its own default.
inline constexpr std::string_view kRxdmDirectory = "/run/tcpx";

/// /sys, /proc and the rest, of this machine or of a directory that stands for it. Paths are absolute, as on the machine:
/// "/sys/class/net/eth0/mtu". Nothing is ever written.
class FileTree {
 public:
  /// @param root stands for "/"; "" is this machine. No slash at its end.
  explicit FileTree(std::string root = {}) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  bool exists(std::string_view path) const;
  /// The first `most_bytes`, without white space at the end. nullopt: no such file, or it cannot be read, as some of /sys cannot;
  /// anything but a file, such as a pipe, is never opened.
  std::optional<std::string> read(std::string_view path, size_t most_bytes = 64 * 1024) const;
  /// The same; "" where there is nothing to read.
  std::string text(std::string_view path) const { return read(path).value_or(""); }
  /// Names in a directory, sorted; none when there is no such directory.
  std::vector<std::string> list(std::string_view path) const;
  /// The end of a symbolic link, with all links on the way followed, as a path of the machine. nullopt: nowhere.
  std::optional<std::string> resolve(std::string_view path) const;
  /// The same; `path` itself where it leads nowhere.
  std::string real(const std::string& path) const { return resolve(path).value_or(path); }

 private:
  std::string at(std::string_view path) const { return root_ + std::string(path); }

  std::string root_;
};

struct Variables {
  std::vector<std::pair<std::string, std::string>> all;

  /// nullopt when it is unset or empty.
  std::optional<std::string> get(std::string_view name) const;
  std::optional<std::string> get(Variable id) const { return get(environment_info(id).name); }
  /// "" when it is unset.
  std::string text(Variable id) const { return get(id).value_or(""); }
};

struct Machine {
  FileTree files;
  Variables variables;
};

/// The plugin that the loader would take.
PluginSource chosen_plugin(const Machine& machine);

/// The path that a machine is meant for. Only where that is GPUDirect-TCPX is it a failure that something of it is missing;
/// elsewhere the software plugin is the right path, and such checks do not apply.
struct Expectation {
  bool vendor_path = false;
  std::string because;  ///< either way
};
Expectation expected_path(const Machine& machine);
/// @param interfaces that become devices of the plugin @param build_has_cuda this build can use a GPU
DataWay data_way(const Machine& machine, std::vector<std::string> interfaces, bool build_has_cuda);

/// The cure where no interface is up, as in a network namespace that is new.
inline constexpr char kBringUpAnInterface[] =
    "ip link set lo up   # is enough within this machine; for other hosts that which leads there, of `ip -br link`";

/// The interface of the default route; "" where there is none.
std::string default_interface(const FileTree& files);
/// Interfaces of Google's virtual NIC but that of the default route: those that carry data on an A3 machine.
std::vector<std::string> data_interfaces(const FileTree& files);

struct PciDevice {
  std::string name;  ///< of a GPU its address, "0000:04:00.0"; of a network interface its own, "eth1"
  std::string path;  ///< below /sys/devices, links resolved
};
/// NVIDIA's display and 3D controllers, by address.
std::vector<PciDevice> pci_gpus(const FileTree& files);
/// Network interfaces that are PCI devices, or hang below one as virtio's do.
std::vector<PciDevice> pci_interfaces(const FileTree& files);
/// As the library places its channels. Where a NUMA node is not told, a machine has only one or it is another one.
PciDistance distance_between(const FileTree& files, const PciDevice& a, const PciDevice& b);
/// Address of the PCI function at the end of a device's path, or above it: "0000:06:00.0"; "" where there is none.
std::string pci_address(const std::string& device_path);
/// Size of BAR 1, the window through which other devices reach a GPU's memory. nullopt: the device's `resource` does not tell.
std::optional<uint64_t> bar1_bytes(const FileTree& files, const PciDevice& gpu);

}  // namespace tcpx::doctor
