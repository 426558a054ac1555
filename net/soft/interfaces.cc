#include "net/soft/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::soft {
namespace {

constexpr int kUnknownSpeedMbps = 10000;

class NamePattern {
 public:
  explicit NamePattern(std::string_view text) {
    for (; !text.empty() && (text.front() == '^' || text.front() == '='); text.remove_prefix(1)) {
      (text.front() == '^' ? exclude_ : exact_) = true;
    }
    while (!text.empty()) {
      const size_t comma = std::min(text.find(','), text.size());
      if (comma > 0) names_.emplace_back(text.substr(0, comma));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
  }
  bool empty() const { return names_.empty(); }
  /// Number of devices for interface `name`.
  size_t count(const std::string& name) const {
    if (exact_ && !exclude_) return static_cast<size_t>(std::count(names_.begin(), names_.end(), name));
    const bool found = std::any_of(names_.begin(), names_.end(), [&](const std::string& wanted) {
      return exact_ ? name == wanted : name.compare(0, wanted.size(), wanted) == 0;
    });
    return found != exclude_ ? 1 : 0;
  }

 private:
  bool exclude_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

bool family_allowed(const SocketAddress& address, AddressFamily family) {
  switch (family) {
    case AddressFamily::kAny:
      return true;
    case AddressFamily::kIpv4:
      return address.family() == AF_INET;
    case AddressFamily::kIpv6:
      return address.family() == AF_INET6;
  }
  return false;
}

std::string list_of(const std::vector<InterfaceAddress>& all) {
  std::string there;
  for (const InterfaceAddress& address : all) {
    there.append(concat(there.empty() ? "" : ", ", address.name, " ", address.address.host(), address.up ? "" : " (down)"));
  }
  return there;
}

std::string pci_path_of(const std::string& name) {
  char resolved[PATH_MAX];
  return ::realpath(concat("/sys/class/net/", name, "/device").c_str(), resolved) != nullptr ? resolved : "";
}

int speed_of(const std::string& name) {
  std::ifstream file(concat("/sys/class/net/", name, "/speed"));
  int mbps = 0;
  return file >> mbps && mbps > 0 ? mbps : kUnknownSpeedMbps;
}

}  // namespace

std::vector<InterfaceAddress> list_addresses() {
  std::vector<InterfaceAddress> all;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const bool v6 = entry->ifa_addr->sa_family == AF_INET6;
    auto address = SocketAddress::from(entry->ifa_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    if (!address.is_ok()) continue;
    all.push_back(
        {.name = entry->ifa_name,
         .address = address->with_port(0),
         .up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0,
         .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
         .link_local = v6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr)});
  }
  return all;
}

std::vector<InterfaceAddress> choose_interfaces(const std::vector<InterfaceAddress>& all, const std::string& pattern_text,
                                                AddressFamily family) {
  const NamePattern pattern(pattern_text);
  const auto collect = [&](bool take_loopback) {
    std::vector<InterfaceAddress> chosen;
    for (const InterfaceAddress& candidate : all) {
      if (!candidate.up || candidate.link_local || !family_allowed(candidate.address, family)) continue;
      if (pattern.empty() ? candidate.loopback != take_loopback : pattern.count(candidate.name) == 0) continue;
      const auto same =
          std::find_if(chosen.begin(), chosen.end(), [&](const auto& other) { return other.name == candidate.name; });
      if (same == chosen.end()) {
        chosen.push_back(candidate);
      } else if (same->address.family() == AF_INET6 && candidate.address.family() == AF_INET) {
        *same = candidate;
      }
    }
    return chosen;
  };
  std::vector<InterfaceAddress> chosen = collect(false);
  if (chosen.empty() && pattern.empty()) chosen = collect(true);
  std::sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<InterfaceAddress> devices;
  for (const InterfaceAddress& interface : chosen) {
    const size_t wanted = pattern.empty() ? 1 : pattern.count(interface.name);
    devices.insert(devices.end(), std::min(wanted, kMaxInterfaces - devices.size()), interface);
  }
  return devices;
}

Result<std::vector<Interface>> find_interfaces(const Config& config) {
  const std::vector<InterfaceAddress> all = list_addresses();
  std::vector<Interface> interfaces;
  for (const InterfaceAddress& chosen : choose_interfaces(all, config.interfaces, config.family)) {
    interfaces.push_back({chosen.name, chosen.address, pci_path_of(chosen.name), speed_of(chosen.name)});
  }
  if (!interfaces.empty()) return interfaces;
  return Status(
      config.interfaces.empty() ? Code::kNotFound : Code::kBadConfig, "find network interfaces",
      concat("none is up and matches NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=\"", config.interfaces, "\"; there are: ", list_of(all)));
}

Result<SocketAddress> choose_control_address(const std::vector<InterfaceAddress>& all, const std::string& name,
                                             AddressFamily family) {
  std::vector<InterfaceAddress> named;
  std::copy_if(all.begin(), all.end(), std::back_inserter(named), [&](const auto& candidate) { return candidate.name == name; });
  const std::vector<InterfaceAddress> chosen = choose_interfaces(named, concat("=", name), family);
  if (!chosen.empty()) return chosen.front().address;
  return Status(
      Code::kBadConfig, "find the control interface",
      concat("NCCL_GPUDIRECTTCPX_CTRL_DEV=\"", name, "\" is not the name of one that is up; there are: ", list_of(all)));
}

Result<std::optional<SocketAddress>> find_control_address(const Config& config) {
  if (config.control_interface.empty()) return std::optional<SocketAddress>();
  TCPX_ASSIGN_OR_RETURN(auto address, choose_control_address(list_addresses(), config.control_interface, config.family));
  return std::optional(address);
}

}  // namespace tcpx::soft
