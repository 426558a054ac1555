#include <algorithm>

#include "base/text.h"
#include "programs/doctor/nic.h"
#include "programs/doctor/words.h"

namespace tcpx::doctor {
namespace {

std::vector<std::string> names_in(const std::vector<soft::InterfaceAddress>& chosen) {
  std::vector<std::string> names;
  for (const soft::InterfaceAddress& one : chosen) {
    if (names.empty() || names.back() != one.name) names.push_back(one.name);
  }
  return names;
}

/// Interfaces that carry data or are meant to.
std::vector<std::string> data_names(const Machine& machine, bool vendor_path, const std::vector<soft::InterfaceAddress>& all) {
  if (const auto pattern = machine.variables.get(Variable::kSocketIfname)) {
    std::vector<soft::InterfaceAddress> known;  // up or not: that is to be found out
    for (const std::string& name : machine.files.list("/sys/class/net")) {
      known.push_back({.name = name, .address = SocketAddress::loopback(0), .up = true, .loopback = false, .link_local = false});
    }
    return names_in(soft::choose_interfaces(known, *pattern, soft::AddressFamily::kAny));
  }
  if (vendor_path) return data_interfaces(machine.files);
  return names_in(soft::choose_interfaces(all, "", soft::AddressFamily::kAny));
}

void read_device(const Machine& machine, const std::vector<PciDevice>& gpus, const std::string& path, Nic& nic) {
  const FileTree& files = machine.files;
  nic.pci = pci_address(path);
  nic.numa_node = numa_node(files, path);
  for (const PciDevice& gpu : gpus) {
    const TopologyDistance distance = pci_distance(files, {nic.name, path}, gpu);
    if (distance > nic.gpu_distance) continue;
    if (distance < nic.gpu_distance) nic.nearest_gpus.clear();
    nic.gpu_distance = distance;
    nic.nearest_gpus.push_back(gpu.name);
  }
}

Nic read_nic(const Machine& machine, const std::string& name, const std::vector<PciDevice>& gpus,
             const std::vector<soft::InterfaceAddress>& addresses) {
  const FileTree& files = machine.files;
  const std::string folder = concat("/sys/class/net/", name);
  const bool named = machine.variables.get(Variable::kSocketIfname).has_value();
  Nic nic{.name = name};
  nic.state = files.read(folder + "/operstate").value_or("unknown");
  nic.is_local = !named && files.exists(folder + "/bridge");
  nic.mtu = number_of(files.text(folder + "/mtu")).value_or(0);
  const auto speed = number_of(files.text(folder + "/speed"));
  if (speed && *speed > 0) nic.speed_mbps = speed;
  for (const std::string& queue : files.list(folder + "/queues")) nic.rx_queues += queue.starts_with("rx-") ? 1 : 0;
  for (const soft::InterfaceAddress& entry : addresses) {
    if (entry.name != name) continue;
    nic.is_local = nic.is_local || entry.loopback;
    if (!entry.link_local) nic.addresses.push_back(entry.address);
  }
  if (const auto driver = files.resolve(folder + "/device/driver")) nic.driver = driver->substr(driver->rfind('/') + 1);
  const std::string path = files.resolve(folder + "/device").value_or("");
  read_device(machine, gpus, path, nic);
  nic.pci_trap = find_pci_trap(name, path);
  nic.cores_trap = find_cores_trap(files.root(), name,
                                   {.send_cores = machine.variables.text(Variable::kTxBindings),
                                    .receive_cores = machine.variables.text(Variable::kRxBindings)});
  return nic;
}

}  // namespace

NicFacts nic_facts(const Machine& machine, const std::vector<soft::InterfaceAddress>& addresses) {
  NicFacts facts{.expected = expected_path(machine)};
  const std::vector<PciDevice> gpus = pci_gpus(machine.files);
  facts.gpus = gpus.size();
  const std::vector<std::string> data = data_names(machine, facts.expected.vendor_path, addresses);
  for (const std::string& name : data) facts.data.push_back(read_nic(machine, name, gpus, addresses));
  const std::string control = default_interface(machine.files);
  for (const std::string& name : machine.files.list("/sys/class/net")) {
    if (std::find(data.begin(), data.end(), name) != data.end()) continue;
    facts.others.push_back(concat(name, name == control ? " (default route)" : ""));
  }
  return facts;
}

}  // namespace tcpx::doctor
