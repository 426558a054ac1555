// Device placement: chooses the plugin's device for each channel of a GPU, the nearest first, by their places in the PCI tree.
//
// A resolved path in sysfs names every bridge between the CPU and the device: "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0"
// is the function 0000:03:00.0 below the bridge 0000:00:02.0 of the host bridge pci0000:00. The more of the path two devices
// share, the nearer they are to each other. Pure functions; local_machine.h asks the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transfer/peer_messages.h"  // kMaxChannels

namespace tcpx {

/// Distance between two PCI devices, nearest first. The names in brackets are those of NCCL and nvidia-smi.
enum class PciDistance {
  kSameSwitch,  ///< behind one switch, or one bridge [PIX]
  kBridges,     ///< several bridges or switches between them, but not the host bridge [PXB]
  kHostBridge,  ///< through the host bridge (root complex) [PHB]
  kSameNode,    ///< another host bridge, the same NUMA node [NODE]
  kOtherNode,   ///< another NUMA node [SYS]
  kUnknown,     ///< the location of one of them is not known well enough
};

std::string_view name_of(PciDistance distance);

/// Location of a device, as far as the machine reports it.
struct DeviceLocation {
  std::optional<std::string> pci_path = {};  ///< resolved path in sysfs; any other path counts as none
  int numa_node = -1;                        ///< -1: unknown
};

/// Distance between two devices; symmetric. The paths decide when both devices are below one host bridge, otherwise the NUMA
/// nodes do.
PciDistance pci_distance(const DeviceLocation& a, const DeviceLocation& b);

/// All devices that are as near to `gpu` as the nearest one: indexes into `devices`, in their order.
std::vector<int> nearest_devices(const DeviceLocation& gpu, std::span<const DeviceLocation> devices);

/// Chooses a device for each channel. The devices nearest to `gpu` come first, so with fewer channels than devices the far ones
/// are left out; with more channels than devices the list is used again from its start. Devices that are equally near keep their
/// order, so that two identical hosts connect the same device on each side, channel by channel.
/// @param channels number of channels; 0: one for each device, at most kMaxChannels
/// @return an index into `devices` for each channel; empty when there are no devices
std::vector<int> place_channels(const DeviceLocation& gpu, std::span<const DeviceLocation> devices, uint32_t channels);

}  // namespace tcpx
