#include "transfer/device_placement.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>

namespace tcpx {
namespace {

/// Removes all hexadecimal digits at the front of `text`. @return true: there were at least `count`
bool take_hex(std::string_view& text, size_t count) {
  const auto end = std::find_if_not(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  const auto found = static_cast<size_t>(end - text.begin());
  text.remove_prefix(found);
  return found >= count;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// True for a name like "pci0000:00".
bool is_host_bridge(std::string_view name) {
  return take(name, "pci") && take_hex(name, 4) && take(name, ":") && take_hex(name, 2) && name.empty();
}

/// True for a name like "0000:03:00.0".
bool is_function(std::string_view name) {
  return take_hex(name, 4) && take(name, ":") && take_hex(name, 2) && take(name, ":") && take_hex(name, 2) && take(name, ".") &&
         take_hex(name, 1) && name.empty();
}

/// Splits a path: everything up to the host bridge, then the functions below it one by one, the device itself last. Names after
/// the functions (".../virtio1") are not part of the PCI tree and are dropped. Empty when `path` names no function below a host
/// bridge.
std::vector<std::string_view> chain_of(std::string_view path) {
  std::vector<std::string_view> chain;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty()) continue;
    if (chain.empty()) {
      if (is_host_bridge(name)) chain.push_back(path.substr(0, end));
    } else if (is_function(name)) {
      chain.push_back(name);
    } else {
      break;
    }
  }
  if (chain.size() < 2) chain.clear();
  return chain;
}

std::vector<std::string_view> chain_of(const DeviceLocation& device) {
  return device.pci_path ? chain_of(std::string_view(*device.pci_path)) : std::vector<std::string_view>();
}

}  // namespace

std::string_view name_of(PciDistance distance) {
  constexpr std::string_view kNames[] = {"PIX", "PXB", "PHB", "NODE", "SYS", "unknown"};
  static_assert(std::size(kNames) == static_cast<size_t>(PciDistance::kUnknown) + 1);
  return kNames[static_cast<size_t>(distance)];
}

PciDistance pci_distance(const DeviceLocation& a, const DeviceLocation& b) {
  const std::vector<std::string_view> chain_a = chain_of(a);
  const std::vector<std::string_view> chain_b = chain_of(b);
  const auto apart = std::mismatch(chain_a.begin(), chain_a.end(), chain_b.begin(), chain_b.end());
  const auto shared = static_cast<size_t>(apart.first - chain_a.begin());
  if (shared == 1) return PciDistance::kHostBridge;
  if (shared > 1) {
    // A switch is two bridges deep: its upstream port, and a downstream port for each device. So below a shared port at most one
    // bridge and the device are left.
    return std::max(chain_a.size(), chain_b.size()) - shared <= 2 ? PciDistance::kSameSwitch : PciDistance::kBridges;
  }
  if (a.numa_node < 0 || b.numa_node < 0) return PciDistance::kUnknown;
  return a.numa_node == b.numa_node ? PciDistance::kSameNode : PciDistance::kOtherNode;
}

std::vector<int> nearest_devices(const DeviceLocation& gpu, std::span<const DeviceLocation> devices) {
  std::vector<int> nearest;
  PciDistance least = PciDistance::kUnknown;
  for (size_t i = 0; i < devices.size(); ++i) {
    const PciDistance distance = pci_distance(gpu, devices[i]);
    if (distance > least) continue;
    if (distance < least) nearest.clear();
    least = distance;
    nearest.push_back(static_cast<int>(i));
  }
  return nearest;
}

std::vector<int> place_channels(const DeviceLocation& gpu, std::span<const DeviceLocation> devices, uint32_t channels) {
  if (devices.empty()) return {};
  std::vector<PciDistance> distances;
  for (const DeviceLocation& device : devices) distances.push_back(pci_distance(gpu, device));
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return distances[static_cast<size_t>(a)] < distances[static_cast<size_t>(b)]; });

  if (channels == 0) channels = static_cast<uint32_t>(std::min<size_t>(devices.size(), kMaxChannels));
  std::vector<int> placed(channels);
  for (size_t i = 0; i < placed.size(); ++i) placed[i] = order[i % order.size()];
  return placed;
}

}  // namespace tcpx
