#include "net/soft/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>
#include <tuple>

#include "base/log.h"
#include "base/near_word.h"
#include "base/text.h"
#include "base/words.h"

namespace tcpx::soft {
namespace {

constexpr int kUnknownSpeedMbps = 10000;
constexpr char kLoopback[] = "lo";
constexpr uint32_t kLinkLocalNet = 0xA9FE;  // 169.254.0.0/16, RFC 3927

class NamePattern {
 public:
  explicit NamePattern(std::string_view text) {
    for (; !text.empty() && (text.front() == '^' || text.front() == '='); text.remove_prefix(1)) {
      (text.front() == '^' ? exclude_ : exact_) = true;
    }
    names_ = split(text, ",");
  }
  /// Whether it says which interfaces to take; else, which not.
  bool names_some() const { return !names_.empty() && !exclude_; }
  /// Its names that none of `there` has.
  std::vector<std::string> missing(const std::vector<std::string>& there) const {
    std::vector<std::string> missing;
    std::copy_if(names_.begin(), names_.end(), std::back_inserter(missing), [&](const std::string& wanted) {
      return std::none_of(there.begin(), there.end(), [&](const std::string& name) { return is(wanted, name); });
    });
    return missing;
  }
  bool allows(const std::string& name) const {
    return std::any_of(names_.begin(), names_.end(), [&](const auto& wanted) { return is(wanted, name); }) != !names_some();
  }
  /// Number of devices for interface `name`.
  size_t count(const std::string& name) const {
    if (exact_ && names_some()) return static_cast<size_t>(std::count(names_.begin(), names_.end(), name));
    return allows(name) ? 1 : 0;
  }

 private:
  bool is(const std::string& wanted, const std::string& name) const { return exact_ ? name == wanted : name.starts_with(wanted); }

  bool exclude_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

std::string list_of(const std::vector<InterfaceAddress>& all) {
  std::string there;
  for (const InterfaceAddress& address : all) {
    there.append(concat(there.empty() ? "" : ", ", describe_interface(address.name, address.kind), " ", address.address.host(),
                        address.up ? "" : " (down)"));
  }
  return there;
}

std::string pci_path_of(const std::string& name) {
  char resolved[PATH_MAX];
  return ::realpath(concat("/sys/class/net/", name, "/device").c_str(), resolved) != nullptr ? resolved : "";
}

int prefix_of(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  if (mask->sa_family == AF_INET) return std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr);
  int bits = 0;
  for (const uint8_t byte : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr) bits += std::popcount(byte);
  return bits;
}

void warn_of_missing(const Config& config) {
  std::vector<std::string> there;
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> all(::if_nameindex(), &::if_freenameindex);
  for (const struct if_nameindex* each = all.get(); each != nullptr && each->if_index != 0; ++each)
    there.emplace_back(each->if_name);
  for (const std::string& name : NamePattern(config.interfaces).missing(there)) {
    const std::string near = near_word(name, there);
    log(LogLevel::kWarning, environment_info(config.interfaces_are_of).name, "=\"", config.interfaces,
        "\": no interface here has the name ", name, near.empty() ? "" : ", did you mean ", near, near.empty() ? "" : "?");
  }
}

int speed_of(const std::string& name) {
  std::ifstream file(concat("/sys/class/net/", name, "/speed"));
  int mbps = 0;
  return file >> mbps && mbps > 0 ? mbps : kUnknownSpeedMbps;
}

}  // namespace

bool is_of(AddressFamily family, const SocketAddress& address) {
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

bool matches_name(const std::string& pattern, const std::string& name) {
  return NamePattern(pattern).allows(name);
}

bool names(const std::string& pattern, const std::string& name) {
  const NamePattern wanted(pattern);
  return wanted.names_some() && wanted.allows(name);
}

std::vector<InterfaceAddress> list_addresses() {
  std::vector<InterfaceAddress> all;
  (void)for_each_address([&](const ifaddrs& entry, const SocketAddress& address) {
    const std::string label = entry.ifa_name, name = label.substr(0, label.find(':'));
    const bool v6 = address.family() == AF_INET6;
    const auto known = std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.name == name; });
    const in6_addr* six = v6 ? &reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr : nullptr;
    const uint32_t four = v6 ? 0 : ntohl(reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr.s_addr);
    all.push_back({.name = name,
                   .address = address.with_port(0),
                   .up = (entry.ifa_flags & IFF_UP) != 0 && (entry.ifa_flags & IFF_RUNNING) != 0,
                   .loopback = address.is_loopback(),
                   .link_local = v6 ? IN6_IS_ADDR_LINKLOCAL(six) : four >> 16 == kLinkLocalNet,
                   .kind = known != all.end() ? known->kind : kind_of_interface(name),
                   .pci_path = known != all.end() ? known->pci_path : pci_path_of(name),
                   .speed_mbps = known != all.end() ? known->speed_mbps : speed_of(name),
                   .prefix = prefix_of(entry.ifa_netmask)});
    return false;
  });
  return all;
}

std::vector<InterfaceAddress> choose_interfaces(const std::vector<InterfaceAddress>& all, const std::string& pattern_text,
                                                AddressFamily family) {
  const NamePattern pattern(pattern_text);
  constexpr int kTiers = 4;
  const auto tier_of = [&](const InterfaceAddress& candidate) {
    if (!candidate.up || !is_of(family, candidate.address)) return kTiers;
    if (candidate.link_local && (candidate.address.family() == AF_INET6 || !pattern.names_some())) return kTiers;
    if (pattern.names_some()) return pattern.count(candidate.name) > 0 ? 0 : kTiers;
    if (!pattern.allows(candidate.name) || candidate.kind.reach == Reach::kHere) return kTiers;
    if (candidate.loopback) return 3;
    if (candidate.kind.reach == Reach::kOverlay) return 2;
    return candidate.name == kLoopback ? 1 : 0;
  };
  std::vector<InterfaceAddress> chosen;
  for (int tier = 0; tier < kTiers && chosen.empty(); ++tier) {
    for (const InterfaceAddress& candidate : all) {
      if (tier_of(candidate) != tier) continue;
      const auto same =
          std::find_if(chosen.begin(), chosen.end(), [&](const auto& other) { return other.name == candidate.name; });
      if (same == chosen.end()) {
        chosen.push_back(candidate);
      } else if (same->address.family() == AF_INET6 && candidate.address.family() == AF_INET) {
        const SocketAddress six = same->address;
        *same = candidate;
        same->other_family = six;
      } else if (!same->other_family && same->address.family() != candidate.address.family()) {
        same->other_family = candidate.address;
      }
    }
  }
  std::sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.pci_path.empty(), -a.speed_mbps, a.name) < std::tuple(b.pci_path.empty(), -b.speed_mbps, b.name);
  });
  std::vector<InterfaceAddress> devices;
  for (const InterfaceAddress& interface : chosen) {
    const size_t wanted = pattern.names_some() ? pattern.count(interface.name) : 1;
    devices.insert(devices.end(), std::min(wanted, kMaxInterfaces - devices.size()), interface);
  }
  return devices;
}

std::vector<SocketAddress> choose_addresses(const std::vector<InterfaceAddress>& all, const std::vector<std::string>& interfaces,
                                            const std::string& pattern, AddressFamily family, size_t most) {
  std::vector<SocketAddress> first, others, loopback;
  for (const std::string& name : interfaces) {
    std::vector<InterfaceAddress> left;
    std::copy_if(all.begin(), all.end(), std::back_inserter(left), [&](const auto& each) { return each.name == name; });
    // A vendor's plugin may have a device that the pattern does not give.
    const std::string taken = choose_interfaces(left, pattern, family).empty() ? concat("=", name) : pattern;
    std::vector<int> seen;
    for (;;) {
      const std::vector<InterfaceAddress> next = choose_interfaces(left, taken, family);
      if (next.empty()) break;
      const SocketAddress address = next.front().address;
      const bool new_family = std::find(seen.begin(), seen.end(), address.family()) == seen.end();
      seen.push_back(address.family());
      (address.is_loopback() ? loopback : new_family ? first : others).push_back(address);
      std::erase_if(left, [&](const auto& each) { return each.address.host() == address.host(); });
    }
  }
  first.insert(first.end(), others.begin(), others.end());
  if (first.empty() && !loopback.empty()) first.push_back(loopback.front());
  if (first.size() > most) first.resize(most);
  return first;
}

std::string find_unused(const std::vector<InterfaceAddress>& all, const std::string& pattern) {
  if (NamePattern(pattern).names_some()) return "";
  const auto unused = std::find_if(all.begin(), all.end(), [](const InterfaceAddress& each) {
    return each.up && !each.loopback && !each.link_local && each.kind.reach != Reach::kHere;
  });
  return unused == all.end() ? "" : concat(unused->name, " ", unused->address.host());
}

Result<std::vector<InterfaceAddress>> find_interfaces(const Config& config) {
  const std::vector<InterfaceAddress> all = list_addresses();
  warn_of_missing(config);
  std::vector<InterfaceAddress> interfaces = choose_interfaces(all, config.interfaces, config.family);
  if (!interfaces.empty()) return interfaces;
  return Status(config.interfaces.empty() ? Code::kNotFound : Code::kBadConfig, "find network interfaces",
                concat("none is up and matches ", environment_info(config.interfaces_are_of).name, "=\"", config.interfaces,
                       "\"; there are: ", list_of(all)));
}

std::vector<SocketAddress> addresses_of(const InterfaceAddress& device) {
  if (!device.other_family) return {device.address};
  return {device.address, *device.other_family};
}

Result<std::vector<SocketAddress>> choose_control_addresses(const std::vector<InterfaceAddress>& all, const std::string& name,
                                                            AddressFamily family) {
  std::vector<InterfaceAddress> named;
  std::copy_if(all.begin(), all.end(), std::back_inserter(named), [&](const auto& candidate) { return candidate.name == name; });
  const std::vector<InterfaceAddress> chosen = choose_interfaces(named, concat("=", name), family);
  if (!chosen.empty()) return addresses_of(chosen.front());
  return Status(
      Code::kBadConfig, "find the control interface",
      concat("NCCL_GPUDIRECTTCPX_CTRL_DEV=\"", name, "\" is not the name of one that is up; there are: ", list_of(all)));
}

Result<std::vector<SocketAddress>> find_control_addresses(const Config& config) {
  if (config.control_interface.empty()) return std::vector<SocketAddress>();
  return choose_control_addresses(list_addresses(), config.control_interface, config.family);
}

}  // namespace tcpx::soft
