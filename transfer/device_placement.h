// Choice of the plugin's device for each channel of a GPU: the nearest first, by their places on the PCI tree.
//
// A path as sysfs resolves it names every bridge on the way from the CPU: "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0" is
// the function 0000:03:00.0 below the bridge 0000:00:02.0 of the host bridge pci0000:00. The longer the way two paths share, the
// nearer the devices. Pure functions; local_machine.h asks the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transfer/peer_messages.h"  // kMaxChannels

namespace tcpx {

/// Nearest first. In brackets the name that NCCL and nvidia-smi give it.
enum class PciDistance {
  kSameSwitch,  ///< behind one switch, or one bridge [PIX]
  kBridges,     ///< several bridges or switches on the way, but not the host bridge [PXB]
  kHostBridge,  ///< by way of the host bridge (root complex) [PHB]
  kSameNode,    ///< another host bridge, the same NUMA node [NODE]
  kOtherNode,   ///< another NUMA node [SYS]
  kUnknown,     ///< not enough is known of one of the two
};

std::string_view name_of(PciDistance distance);

/// Place of a device, as far as the machine tells.
struct DeviceLocation {
  std::optional<std::string> pci_path = {};  ///< resolved, in sysfs; any other path counts as none
  int numa_node = -1;                        ///< -1: unknown
};

/// The same both ways. The path decides as long as both hang below one host bridge, else the NUMA nodes do.
PciDistance pci_distance(const DeviceLocation& a, const DeviceLocation& b);

/// Those (indexes into `devices`) that are as near to `gpu` as the nearest one, in their order.
std::vector<int> nearest_devices(const DeviceLocation& gpu, std::span<const DeviceLocation> devices);

/// The device (index into `devices`) of each of `channels` channels; 0 channels: one for each device, at most kMaxChannels. The
/// nearest to `gpu` come first, so that with fewer channels than devices the far ones are left out; with more it goes round
/// again. Devices that are equally near keep their order: two alike hosts then pair like with like, channel by channel.
/// Empty without devices.
std::vector<int> place_channels(const DeviceLocation& gpu, std::span<const DeviceLocation> devices, uint32_t channels);

}  // namespace tcpx
