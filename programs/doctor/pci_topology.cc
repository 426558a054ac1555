#include "programs/doctor/pci_topology.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/text.h"

namespace tcpx::doctor {
namespace {

/// What a device's path consists of: the root "pci0000:00" first, then bridges, then the device.
struct PciPath {
  std::string root;
  std::vector<std::string> functions;
};

bool is_function(std::string_view part) {
  return part.size() >= 12 && part[part.size() - 8] == ':' && part[part.size() - 5] == ':' && part[part.size() - 2] == '.';
}

PciPath parse(const std::string& path) {
  PciPath parsed;
  std::istringstream parts(path);
  std::string part;
  while (std::getline(parts, part, '/')) {
    if (is_function(part)) parsed.functions.push_back(part);
    // A root inside another one, as of VMD, is the nearer one.
    if (part.starts_with("pci")) parsed = {.root = part, .functions = {}};
  }
  return parsed;
}

/// -1 when neither the device nor one above it tells.
int numa_node(const FileTree& files, std::string path) {
  while (!path.empty()) {
    if (const auto text = files.read(path + "/numa_node")) {
      int node = -1;
      std::from_chars(text->data(), text->data() + text->size(), node);
      return node;
    }
    path.resize(path.rfind('/'));
  }
  return -1;
}

size_t numa_nodes(const FileTree& files) {
  const std::vector<std::string> names = files.list("/sys/devices/system/node");
  return static_cast<size_t>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos;
  }));
}

}  // namespace

std::vector<PciDevice> pci_gpus(const FileTree& files) {
  std::vector<PciDevice> gpus;
  for (const std::string& address : files.list("/sys/bus/pci/devices")) {
    const std::string link = concat("/sys/bus/pci/devices/", address);
    if (files.read(link + "/vendor") != kNvidia) continue;
    if (!files.read(link + "/class").value_or("").starts_with(kDisplayClass)) continue;
    gpus.push_back({address, files.resolve(link).value_or(link)});
  }
  return gpus;
}

std::vector<PciDevice> pci_interfaces(const FileTree& files) {
  std::vector<PciDevice> interfaces;
  for (const std::string& name : files.list("/sys/class/net")) {
    const auto path = files.resolve(concat("/sys/class/net/", name, "/device"));
    if (path && !parse(*path).functions.empty()) interfaces.push_back({name, *path});
  }
  return interfaces;
}

std::string_view name_of(PciDistance distance) {
  switch (distance) {
    case PciDistance::kPix:
      return "PIX";
    case PciDistance::kPxb:
      return "PXB";
    case PciDistance::kPhb:
      return "PHB";
    case PciDistance::kNode:
      return "NODE";
    case PciDistance::kSys:
      return "SYS";
  }
  return "";
}

PciDistance pci_distance(const FileTree& files, const PciDevice& a, const PciDevice& b) {
  const PciPath from = parse(a.path), to = parse(b.path);
  if (from.root != to.root) {
    const int here = numa_node(files, a.path), there = numa_node(files, b.path);
    const bool same = here >= 0 && there >= 0 ? here == there : numa_nodes(files) <= 1;
    return same ? PciDistance::kNode : PciDistance::kSys;
  }
  const auto fork = std::mismatch(from.functions.begin(), from.functions.end(), to.functions.begin(), to.functions.end());
  if (fork.first == from.functions.begin()) return PciDistance::kPhb;
  // Below the bridge they share a switch has one more of its own on each way down; a second one belongs to another switch.
  const auto bridges_below = [](auto first, auto last) { return std::max<ptrdiff_t>(last - first - 1, 0); };
  const bool one_switch =
      bridges_below(fork.first, from.functions.end()) <= 1 && bridges_below(fork.second, to.functions.end()) <= 1;
  return one_switch ? PciDistance::kPix : PciDistance::kPxb;
}

std::optional<uint64_t> bar1_bytes(const FileTree& files, const PciDevice& gpu) {
  // One line per BAR register: first and last address, flags (Linux: Documentation/PCI/sysfs-pci.rst). What NVIDIA calls BAR 1 is
  // the second window: the second register up to Ampere, the third from Hopper on, whose BAR 0 is of 64 bits and takes two.
  std::istringstream registers(files.read(gpu.path + "/resource").value_or(""));
  const auto number = [](const std::string& text) {
    uint64_t value = 0;
    if (text.starts_with("0x")) std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
    return value;
  };
  std::string first, last, flags;
  for (int windows = 0, i = 0; i < 3 && registers >> first >> last >> flags; ++i) {
    const uint64_t begin = number(first), end = number(last);
    if (end > begin && ++windows == 2) return end - begin + 1;
  }
  return std::nullopt;
}

}  // namespace tcpx::doctor
