#include "base/pci_device.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <memory>

namespace tcpx {

std::optional<std::string> find_pci_path(const std::string& bus_id, const std::string& root) {
  // An id is a single path component: "" would name the folder itself, and an id with a slash would lead elsewhere.
  if (bus_id.empty() || bus_id.find('/') != std::string::npos) return std::nullopt;
  std::string name = bus_id;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string link = root + "/sys/bus/pci/devices/" + name;
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(link.c_str(), nullptr), &std::free);
  if (resolved == nullptr) return std::nullopt;
  return resolved.get();
}

std::string bus_id_of(const std::string& pci_path) {
  return pci_path.substr(pci_path.find_last_of('/') + 1);  // npos + 1 is 0
}

int read_numa_node(const std::string& pci_path, const std::string& root) {
  std::string folder = pci_path;
  while (!folder.empty()) {
    std::ifstream file(root + folder + "/numa_node");
    int node = -1;
    if (file >> node) return std::max(node, -1);
    const size_t slash = folder.find_last_of('/');
    folder.resize(slash == std::string::npos ? 0 : slash);
  }
  return -1;
}

}  // namespace tcpx
