#include "net/vendor_traps.h"

#include <sys/un.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

#include "base/environment.h"
#include "base/text.h"
#include "base/words.h"

namespace tcpx {
namespace {

// The longest name below RxDM's directory (src/gpu/rx_pool.cu). The plugin copies it with its terminating zero into sun_path.
constexpr std::string_view kLongestSocketName = "/get_gpu_metadata_0000:04:00.0";
constexpr size_t kLongestDirectory = sizeof(sockaddr_un::sun_path) - 1 - kLongestSocketName.size();
// src/common.h
constexpr int kMostRanges = 8;

std::string_view name_of_variable(Variable id) {
  return environment_info(id).name;
}

/// Matches as the plugin does: interfaces of every kind, up or down, IPv6 addresses of every kind but loopback.
std::vector<std::string> matching(const std::vector<soft::InterfaceAddress>& all, const std::string& pattern,
                                  soft::AddressFamily family) {
  std::set<std::string> names;
  for (const soft::InterfaceAddress& each : all) {
    const bool other = (each.loopback && each.address.family() == AF_INET6) || !soft::is_of(family, each.address);
    if (!other && soft::matches_name(pattern, each.name)) names.insert(each.name);
  }
  return {names.begin(), names.end()};
}

/// It only counts "a-b" at the beginning of the list (src/common.cc, getNodeCpu).
int ranges_in_cpulist(const std::string& list) {
  int ranges = 0, low = 0, high = 0, used = 0;
  for (const char* at = list.c_str(); std::sscanf(at, "%d-%d%n", &low, &high, &used) == 2;) {
    ++ranges;
    at += used;
    if (*at == ',') ++at;
  }
  return ranges;
}

/// "eth1:8-21,112-125;eth2:...": counts the ranges of `interface`; it skips parts that are not ranges. nullopt: not named.
std::optional<int> ranges_in_bindings(const std::string& bindings, const std::string& interface) {
  std::optional<int> ranges;
  for (const std::string& phrase : split(bindings, ";")) {
    if (!phrase.starts_with(interface + ":")) continue;
    ranges = 0;
    for (const std::string& range : split(phrase.substr(interface.size() + 1), ","))
      *ranges += range.find('-') != range.npos ? 1 : 0;
  }
  return ranges;
}

std::string bind(Variable id, const std::string& interface) {
  return concat(name_of_variable(id), "=", interface, ":0-0");
}

/// @param cpulist number of ranges if the variable does not name the interface
std::optional<VendorTrap> ranges_trap(Variable id, const std::string& bindings, const std::string& interface, int cpulist,
                                      const std::string& list) {
  const auto bound = ranges_in_bindings(bindings, interface);
  const int ranges = bound.value_or(cpulist);
  if (ranges > 0 && ranges <= kMostRanges) return std::nullopt;
  return VendorTrap{.code = bound ? Code::kBadConfig : Code::kUnsupported,
                    .found = bound ? concat(name_of_variable(id), " gives ", interface, " ", ranges, " ranges of cores")
                                   : concat("the cores near ", interface, " are \"", list, "\", which GPUDirect-TCPX reads as ",
                                            ranges, " ranges"),
                    .why = ranges == 0 ? "It knows ranges like 0-7 only, and without one its first thread divides by zero."
                                       : concat("It has room for ", kMostRanges, " and writes beyond it."),
                    .mend = concat("export ", bind(Variable::kTxBindings, interface), " ", bind(Variable::kRxBindings, interface),
                                   "   # or a better range near the NIC")};
}

/// "0000:06:00.0", the only form that it reads (src/gpu/tx_pool.cu).
bool is_pci_address(std::string_view text) {
  unsigned bus = 0, device = 0, function = 0;
  int used = 0;
  const std::string copy(text);
  return std::sscanf(copy.c_str(), "0000:%2x:%2x.%1x%n", &bus, &device, &function, &used) == 3 &&
         static_cast<size_t>(used) == copy.size();
}

}  // namespace

Status refusal_of(const VendorTrap& trap, std::string_view operation) {
  return Status(trap.code, std::string(operation), concat(trap.found, ". ", trap.why, " Mend: ", trap.mend));
}

std::optional<std::vector<std::string>> vendor_interfaces(const std::vector<soft::InterfaceAddress>& all,
                                                          const VendorSettings& settings) {
  if (settings.interfaces.size() > 1) {                                           // it treats one character as none
    if (settings.interfaces.find(':') != std::string::npos) return std::nullopt;  // it reads that as a port
    return matching(all, settings.interfaces, settings.family);
  }
  std::vector<std::string> names = matching(all, "ib", settings.family);
  if (names.empty() && settings.names_peer) return std::nullopt;
  for (const char* pattern : {"^docker,lo", "docker", "lo"}) {
    if (names.empty()) names = matching(all, pattern, settings.family);
  }
  return names;
}

std::optional<VendorTrap> find_rxdm_directory_trap(const std::string& directory) {
  if (directory.size() <= kLongestDirectory) return std::nullopt;
  return VendorTrap{
      .code = Code::kBadConfig,
      .found = concat(name_of_variable(Variable::kUnixClientPrefix), " is ", directory.size(), " characters long, at most ",
                      kLongestDirectory, " are possible"),
      .why = "The sockets below it have names too long for a unix socket, and GPUDirect-TCPX overwrites its stack.",
      .mend = concat("ln -s ", directory, " /run/tcpx && export ", name_of_variable(Variable::kUnixClientPrefix), "=/run/tcpx")};
}

std::optional<VendorTrap> find_control_trap(const std::vector<soft::InterfaceAddress>& all, const VendorSettings& settings) {
  if (settings.control.empty() || settings.control.find(':') != std::string::npos) return std::nullopt;
  if (!matching(all, settings.control, settings.family).empty()) return std::nullopt;
  return VendorTrap{
      .code = Code::kBadConfig,
      .found = concat(name_of_variable(Variable::kCtrlDev), "=", settings.control, " names no interface with an address"),
      .why = "GPUDirect-TCPX then takes the address of control connections out of memory that nobody has written.",
      .mend = concat("export ", name_of_variable(Variable::kCtrlDev),
                     "=eth0   # the interface of the default route, see `ip route`")};
}

std::optional<VendorTrap> find_cores_trap(const std::string& root, const std::string& interface, const VendorSettings& settings) {
  const std::string node_file = concat("/sys/class/net/", interface, "/device/numa_node");
  std::ifstream node_stream(root + node_file);
  std::string node;
  if (!node_stream || !std::getline(node_stream, node)) return std::nullopt;  // it uses all cores then
  // It only looks at the first character.
  const std::string list_file = concat("/sys/devices/system/node/node", node.starts_with('0') ? 0 : 1, "/cpulist");
  std::ifstream list_stream(root + list_file);
  if (!list_stream) {
    return VendorTrap{
        .found = concat(node_file, " says ", node, ", so GPUDirect-TCPX looks for ", list_file, ", and there is none"),
        .why = "It knows the nodes 0 and 1 only, and ends by a segmentation fault.",
        .mend = concat("echo 0 | sudo tee ", node_file)};
  }
  std::string list;
  std::getline(list_stream, list);
  const int ranges = ranges_in_cpulist(list);
  if (ranges > kMostRanges) return ranges_trap(Variable::kTxBindings, "", interface, ranges, list);
  if (auto trap = ranges_trap(Variable::kTxBindings, settings.send_cores, interface, ranges, list)) return trap;
  return ranges_trap(Variable::kRxBindings, settings.receive_cores, interface, ranges, list);
}

std::optional<VendorTrap> find_pci_trap(const std::string& interface, const std::optional<std::string>& pci_path) {
  const std::string path = pci_path.value_or("");
  if (is_pci_address(std::string_view(path).substr(path.find_last_of('/') + 1))) return std::nullopt;
  return VendorTrap{
      .found = path.empty() ? concat(interface, " is no PCI device")
                            : concat("the device of ", interface, ", ", path, ", is none of PCI domain 0000"),
      .why = "GPUDirect-TCPX gives GPU memory to a NIC by its PCI address, and ends by a segmentation fault without one.",
      .mend = concat("export ", name_of_variable(Variable::kSocketIfname), "=<the machine's gVNICs for data>")};
}

Status check_vendor_machine(const std::string& root, const std::vector<soft::InterfaceAddress>& all,
                            const VendorSettings& settings, std::string_view operation) {
  if (const auto trap = find_rxdm_directory_trap(settings.rxdm_directory)) return refusal_of(*trap, operation);
  if (const auto trap = find_control_trap(all, settings)) return refusal_of(*trap, operation);
  for (const std::string& interface : vendor_interfaces(all, settings).value_or(std::vector<std::string>())) {
    if (const auto trap = find_cores_trap(root, interface, settings)) return refusal_of(*trap, operation);
  }
  return Status::ok();
}

Result<VendorSettings> vendor_settings() {
  TCPX_ASSIGN_OR_RETURN(const auto family, environment_choice(Variable::kSocketFamily));
  VendorSettings settings{.interfaces = environment_text(Variable::kSocketIfname),
                          .control = environment_text(Variable::kCtrlDev),
                          .rxdm_directory = environment_text(Variable::kUnixClientPrefix),
                          .send_cores = environment_text(Variable::kTxBindings),
                          .receive_cores = environment_text(Variable::kRxBindings),
                          .family = static_cast<soft::AddressFamily>(family)};
  const auto all = environment_snapshot();
  settings.names_peer =
      std::any_of(all.begin(), all.end(), [](const auto& each) { return each.first == "NET_COMM_ID" && each.second.size() > 1; });
  return settings;
}

}  // namespace tcpx
