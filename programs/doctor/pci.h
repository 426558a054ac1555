// GPUs and network interfaces on the PCI bus, and how far they are from each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "programs/doctor/machine.h"

namespace tcpx::doctor {

struct PciDevice {
  std::string name;  ///< of a GPU its address, "0000:04:00.0"; of a network interface its own, "eth1"
  std::string path;  ///< below /sys/devices, links resolved
};

/// NVIDIA's display and 3D controllers, by address.
std::vector<PciDevice> pci_gpus(const FileTree& files);
/// Network interfaces that are PCI devices, or hang below one as virtio's do.
std::vector<PciDevice> pci_interfaces(const FileTree& files);

/// Nearest first. The words are those of `nvidia-smi topo -m`.
enum class TopologyDistance : uint8_t {
  kPix,   ///< below one PCI bridge or switch
  kPxb,   ///< several bridges, without the host bridge
  kPhb,   ///< over the host bridge
  kNode,  ///< over several host bridges of one NUMA node
  kSys,   ///< between NUMA nodes
};
std::string_view name_of(TopologyDistance distance);
TopologyDistance pci_distance(const FileTree& files, const PciDevice& a, const PciDevice& b);

/// Address of the PCI function at the end of a device's path, or above it: "0000:06:00.0"; "" where there is none.
std::string pci_address(const std::string& device_path);
/// -1 when neither the device nor one above it tells, as on a machine with one node.
int numa_node(const FileTree& files, std::string device_path);

/// Size of BAR 1, the window through which other devices reach a GPU's memory. nullopt: the device's `resource` does not tell.
std::optional<uint64_t> bar1_bytes(const FileTree& files, const PciDevice& gpu);

}  // namespace tcpx::doctor
