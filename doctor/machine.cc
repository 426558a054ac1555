#include "doctor/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/pci_device.h"
#include "base/text.h"
#include "base/words.h"

namespace tcpx::doctor {

namespace fs = std::filesystem;

bool FileTree::exists(std::string_view path) const {
  std::error_code error;
  return fs::exists(at(path), error);
}

std::optional<std::string> FileTree::read(std::string_view path, size_t most_bytes) const {
  std::error_code error;
  if (!fs::is_regular_file(at(path), error)) return std::nullopt;
  std::ifstream file(at(path), std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(most_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) return std::nullopt;
  text.resize(static_cast<size_t>(file.gcount()));
  text.erase(text.find_last_not_of(" \t\n") + 1);
  return text;
}

std::vector<std::string> FileTree::list(std::string_view path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(at(path), error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> FileTree::resolve(std::string_view path) const {
  std::error_code error;
  const fs::path root = root_.empty() ? fs::path() : fs::canonical(root_, error);
  if (error) return std::nullopt;
  const std::string real = fs::canonical(at(path), error).string();
  if (error || !real.starts_with(root.string())) return std::nullopt;
  return real.substr(root.string().size());
}

std::optional<std::string> Variables::get(std::string_view name) const {
  for (const auto& [known, value] : all) {
    if (known == name && !value.empty()) return value;
  }
  return std::nullopt;
}

PluginSource chosen_plugin(const Machine& machine) {
  return choose_plugin({}, machine.variables.text(Variable::kPluginPath), machine.variables.text(Variable::kNetwork),
                       [&](const std::string& path) { return machine.files.exists(path); });
}

Expectation expected_path(const Machine& machine) {
  const auto [path, reason] = chosen_plugin(machine);
  if (!machine.variables.text(Variable::kPluginPath).empty()) {
    const bool software = path == kEmbedded || path.ends_with("libnccl-net-tcpx-soft.so");
    return {!software, concat(environment_info(Variable::kPluginPath).name, "=", path)};
  }
  if (reason.starts_with(environment_info(Variable::kNetwork).name)) return {path != kEmbedded, reason};
  if (path != kEmbedded) return {true, concat("a plugin is installed at ", path)};
  if (machine.files.exists(kRxdmDirectory)) return {true, concat("there is ", kRxdmDirectory, ", the directory of RxDM")};
  return {false, "no GPUDirect-TCPX plugin is named or installed"};
}

DataWay data_way(const Machine& machine, std::vector<std::string> interfaces, bool build_has_cuda) {
  const size_t gpus = pci_gpus(machine.files).size();
  return {.plugin = expected_path(machine).vendor_path ? "GPUDirect-TCPX" : "tcpx-soft over TCP",
          .interfaces = std::move(interfaces),
          .memory = gpus == 0        ? "host memory"
                    : build_has_cuda ? concat("memory of ", gpus, gpus == 1 ? " GPU" : " GPUs")
                                     : "host memory, because this build is without CUDA"};
}

std::string default_interface(const FileTree& files) {
  for (const std::string& line : split(files.text("/proc/net/route"), "\n")) {
    const std::vector<std::string> fields = split(line, "\t ");
    if (fields.size() > 1 && fields[1] == "00000000") return fields[0];
  }
  return "";
}

std::vector<std::string> data_interfaces(const FileTree& files) {
  const std::string control = default_interface(files);
  std::vector<std::string> names;
  for (const std::string& name : files.list("/sys/class/net")) {
    const auto driver = files.resolve(concat("/sys/class/net/", name, "/device/driver"));
    if (driver && driver->ends_with("/gve") && name != control) names.push_back(name);
  }
  return names;
}

std::string pci_address(const std::string& device_path) {
  std::vector<std::string> parts = split(device_path, "/");
  const auto is_function = [](const std::string& part) {
    const size_t size = part.size();
    return size >= 12 && part[size - 8] == ':' && part[size - 5] == ':' && part[size - 2] == '.';
  };
  while (!parts.empty() && !is_function(parts.back())) parts.pop_back();
  return parts.empty() ? "" : parts.back();
}

std::vector<PciDevice> pci_gpus(const FileTree& files) {
  // PCI's `vendor` of NVIDIA, and how `class` of a display controller begins (PCI Code and ID Assignment Specification).
  constexpr std::string_view kNvidia = "0x10de", kDisplayClass = "0x03";
  std::vector<PciDevice> gpus;
  for (const std::string& address : files.list("/sys/bus/pci/devices")) {
    const std::string link = concat("/sys/bus/pci/devices/", address);
    if (files.text(link + "/vendor") != kNvidia || !files.text(link + "/class").starts_with(kDisplayClass)) continue;
    gpus.push_back({address, files.real(link)});
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

PciDistance distance_between(const FileTree& files, const PciDevice& a, const PciDevice& b) {
  const auto is_node = [](const auto& name) { return name.starts_with("node") && number_of(name.substr(4)); };
  const bool one_node = std::ranges::count_if(files.list("/sys/devices/system/node"), is_node) <= 1;
  const auto location_of = [&](const PciDevice& device) {
    const int node = read_numa_node(device.path, files.root());
    return DeviceLocation{device.path, node < 0 && one_node ? 0 : node};
  };
  return std::min(pci_distance(location_of(a), location_of(b)), PciDistance::kOtherNode);
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
