#include "programs/doctor/pci.h"

#include <algorithm>

#include "base/text.h"
#include "programs/doctor/words.h"

namespace tcpx::doctor {
namespace {

// PCI's `vendor` of NVIDIA, and how `class` of a display controller begins (PCI Code and ID Assignment Specification).
constexpr std::string_view kNvidia = "0x10de", kDisplayClass = "0x03";

/// A device's path taken apart: the root "pci0000:00" first, then bridges, then the device.
struct PciPath {
  std::string root;
  std::vector<std::string> functions;
};

bool is_function(std::string_view part) {
  return part.size() >= 12 && part[part.size() - 8] == ':' && part[part.size() - 5] == ':' && part[part.size() - 2] == '.';
}

PciPath parse(const std::string& path) {
  PciPath parsed;
  for (const std::string& part : split(path, "/")) {
    if (is_function(part)) parsed.functions.push_back(part);
    // A root inside another one, as of VMD, is the nearer one.
    if (part.starts_with("pci")) parsed = {.root = part, .functions = {}};
  }
  return parsed;
}

size_t numa_nodes(const FileTree& files) {
  const std::vector<std::string> names = files.list("/sys/devices/system/node");
  return static_cast<size_t>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos;
  }));
}

}  // namespace

std::string pci_address(const std::string& device_path) {
  const std::vector<std::string> functions = parse(device_path).functions;
  return functions.empty() ? "" : functions.back();
}

int numa_node(const FileTree& files, std::string device_path) {
  // A virtio device's folder lies below that of its PCI function.
  for (; !device_path.empty(); device_path.resize(device_path.rfind('/'))) {
    if (const auto text = files.read(device_path + "/numa_node")) return std::max(number_of<int>(*text).value_or(-1), -1);
  }
  return -1;
}

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
    if (path && !pci_address(*path).empty()) interfaces.push_back({name, *path});
  }
  return interfaces;
}

std::string_view name_of(TopologyDistance distance) {
  switch (distance) {
    case TopologyDistance::kPix:
      return "PIX";
    case TopologyDistance::kPxb:
      return "PXB";
    case TopologyDistance::kPhb:
      return "PHB";
    case TopologyDistance::kNode:
      return "NODE";
    case TopologyDistance::kSys:
      return "SYS";
  }
  return "";
}

TopologyDistance pci_distance(const FileTree& files, const PciDevice& a, const PciDevice& b) {
  const PciPath from = parse(a.path), to = parse(b.path);
  if (from.root != to.root) {
    const int here = numa_node(files, a.path), there = numa_node(files, b.path);
    const bool same = here >= 0 && there >= 0 ? here == there : numa_nodes(files) <= 1;
    return same ? TopologyDistance::kNode : TopologyDistance::kSys;
  }
  const auto fork = std::mismatch(from.functions.begin(), from.functions.end(), to.functions.begin(), to.functions.end());
  if (fork.first == from.functions.begin()) return TopologyDistance::kPhb;
  // Below the bridge they share a switch has one more of its own on each way down; a second one belongs to another switch.
  const auto bridges_below = [](auto first, auto last) { return std::max<ptrdiff_t>(last - first - 1, 0); };
  const bool one_switch =
      bridges_below(fork.first, from.functions.end()) <= 1 && bridges_below(fork.second, to.functions.end()) <= 1;
  return one_switch ? TopologyDistance::kPix : TopologyDistance::kPxb;
}

std::optional<uint64_t> bar1_bytes(const FileTree& files, const PciDevice& gpu) {
  // One line per BAR register: first and last address, flags (Linux: Documentation/PCI/sysfs-pci.rst). NVIDIA's BAR 1 is the
  // second window: the second register up to Ampere, the third from Hopper on, whose BAR 0 is of 64 bits and takes two.
  int windows = 0;
  std::vector<std::string> registers = split(files.text(gpu.path + "/resource"), "\n");
  registers.resize(std::min<size_t>(registers.size(), 3));
  for (const std::string& line : registers) {
    const std::vector<std::string> numbers = split(line, " ");
    if (numbers.size() != 3 || !numbers[0].starts_with("0x") || !numbers[1].starts_with("0x")) break;
    const uint64_t begin = number_of<uint64_t>(numbers[0].substr(2), 16).value_or(0);
    const uint64_t end = number_of<uint64_t>(numbers[1].substr(2), 16).value_or(0);
    if (end > begin && ++windows == 2) return end - begin + 1;
  }
  return std::nullopt;
}

}  // namespace tcpx::doctor
