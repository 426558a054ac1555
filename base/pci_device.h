// Reads facts about PCI devices from sysfs. `root` is prepended to every path, so that tests can use a tree of their own.
#pragma once

#include <optional>
#include <string>

namespace tcpx {

/// Location of the device `bus_id`: the resolved path of /sys/bus/pci/devices/<bus_id> below `root`, for example
/// "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0". Letters in `bus_id` may be upper case. nullopt when there is no such
/// device.
std::optional<std::string> find_pci_path(const std::string& bus_id, const std::string& root = "");

/// The bus id at the end of a location, as in "0000:03:00.0".
std::string bus_id_of(const std::string& pci_path);

/// NUMA node of the device at `pci_path`, or of its nearest ancestor that has one: a network interface's path may end below its
/// PCI function, as in ".../0000:00:05.0/virtio1". -1 when it is unknown.
int read_numa_node(const std::string& pci_path, const std::string& root = "");

}  // namespace tcpx
