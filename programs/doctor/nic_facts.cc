#include "programs/doctor/nic_facts.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "programs/doctor/pci_topology.h"

namespace tcpx::doctor {
namespace {

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (end > at) parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// "0000:06:00.0"
bool is_pci_address(std::string_view name) {
  const size_t size = name.size();
  return size >= 12 && name[size - 2] == '.' && name[size - 5] == ':' && name[size - 8] == ':';
}

std::optional<int64_t> read_number(const Machine& machine, const std::string& path) {
  const auto text = machine.files.read(path);
  int64_t number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) return std::nullopt;
  return number;
}

int read_node(const Machine& machine, std::string folder) {
  // A virtio device's folder lies below that of its PCI function.
  for (; !folder.empty(); folder.resize(folder.find_last_of('/'))) {
    if (const auto node = read_number(machine, folder + "/numa_node")) return static_cast<int>(std::max<int64_t>(*node, -1));
  }
  return -1;
}

}  // namespace

Nic read_nic(const Machine& machine, const std::string& name) {
  const std::string folder = concat("/sys/class/net/", name);
  Nic nic{.name = name};
  nic.state = machine.files.read(folder + "/operstate").value_or("unknown");
  // Virtual drivers may not tell.
  nic.up = nic.state == "up" || nic.state == "unknown";
  nic.is_bridge = machine.files.exists(folder + "/bridge");
  nic.mtu = read_number(machine, folder + "/mtu").value_or(0);
  const auto speed = read_number(machine, folder + "/speed");
  if (speed && *speed > 0) nic.speed_mbps = speed;
  for (const std::string& queue : machine.files.list(folder + "/queues")) nic.rx_queues += queue.starts_with("rx-") ? 1 : 0;
  if (const auto driver = machine.files.resolve(folder + "/device/driver"))
    nic.driver = driver->substr(driver->find_last_of('/') + 1);
  if (const auto device = machine.files.resolve(folder + "/device")) {
    nic.device_path = *device;
    for (const std::string_view part : parts_of(*device)) {
      if (is_pci_address(part)) nic.pci = part;
    }
    nic.numa_node = read_node(machine, *device);
  }
  return nic;
}

std::string of(std::string_view check, const Nic& nic) {
  return concat(check, "[", nic.name, "]");
}

std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += concat(list.empty() ? "" : ", ", name);
  return list;
}

std::vector<PciGpu> find_gpus(const Machine& machine) {
  std::vector<PciGpu> gpus;
  for (const std::string& address : machine.files.list("/sys/bus/pci/devices")) {
    const std::string folder = concat("/sys/bus/pci/devices/", address);
    if (machine.files.read(folder + "/vendor").value_or("") != kNvidia) continue;
    if (!machine.files.read(folder + "/class").value_or("").starts_with(kDisplayClass)) continue;
    gpus.push_back({address, machine.files.resolve(folder).value_or("")});
  }
  return gpus;
}

Nearness nearness(const std::string& one, const std::string& other) {
  const std::vector<std::string_view> a = parts_of(one), b = parts_of(other);
  Nearness nearest = Nearness::kApart;
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) {
    if (a[i].starts_with("pci")) nearest = Nearness::kRoot;
    if (is_pci_address(a[i])) nearest = Nearness::kBridge;
  }
  return nearest;
}

}  // namespace tcpx::doctor
