// What /sys tells of a network interface, and which GPUs sit near it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "programs/doctor/machine.h"

namespace tcpx::doctor {

struct Nic {
  std::string name;
  std::string driver;       ///< "gve"; "" for an interface without a device: veth, bridge, loopback, ...
  std::string device_path;  ///< of its device below /sys/devices; "" without one
  std::string pci;          ///< "0000:06:00.0"; "" when it is no PCI device
  int numa_node = -1;       ///< -1: unknown, or the machine has one only
  bool up = false;          ///< switched on and with carrier, as far as the driver tells
  std::string state;        ///< operstate as the kernel names it: "up", "down", "lowerlayerdown", ...
  bool is_bridge = false;
  std::optional<int64_t> speed_mbps;  ///< where the driver tells
  int64_t mtu = 0;
  size_t rx_queues = 0;
};
Nic read_nic(const Machine& machine, const std::string& name);

/// "mtu[eth1]": a check of one interface.
std::string of(std::string_view check, const Nic& nic);
/// "eth1, eth2"
std::string list_of(const std::vector<std::string>& names);

struct PciGpu {
  std::string pci;
  std::string device_path;
};
/// NVIDIA's display controllers on the PCI bus, driver or not, by address.
std::vector<PciGpu> find_gpus(const Machine& machine);

enum class Nearness : uint8_t {
  kApart,   ///< below different PCI roots, or the NIC is no PCI device
  kRoot,    ///< they meet at a PCI root
  kBridge,  ///< they meet at a bridge or switch below it
};
/// @param one, other  device paths as above
Nearness nearness(const std::string& one, const std::string& other);

}  // namespace tcpx::doctor
