#include <arpa/inet.h>

#include <algorithm>

#include "base/text.h"
#include "base/words.h"
#include "doctor/network.h"
#include "net/soft/interfaces.h"

namespace tcpx::doctor {
namespace {

// The kernel's own defaults (Documentation/networking/ip-sysctl.rst).
constexpr PortRange kDefaultLocalPorts{32768, 60999};

/// "8080,9000-9010", "32768 60999": ports and ranges as the kernel prints them; `between` stands inside a range.
PortRanges ranges_in(const std::string& text, std::string_view separators, std::string_view between) {
  PortRanges ranges;
  for (const std::string& part : split(text, separators)) {
    const std::vector<std::string> ends = split(part, between);
    const auto first = number_of<uint16_t>(ends.empty() ? "" : ends.front());
    const auto last = number_of<uint16_t>(ends.empty() ? "" : ends.back());
    if (ends.size() <= 2 && first && last && *first <= *last) ranges.push_back({*first, *last});
  }
  return ranges;
}

/// In order; those that meet become one.
PortRanges merged(PortRanges ranges) {
  std::ranges::sort(ranges, {}, &PortRange::first);
  PortRanges apart;
  for (const PortRange& range : ranges) {
    if (!apart.empty() && range.first <= apart.back().last + 1u) {
      apart.back().last = std::max(apart.back().last, range.last);
    } else {
      apart.push_back(range);
    }
  }
  return apart;
}

PortNeeds port_needs(const Machine& machine, bool vendor_path) {
  PortNeeds ports;
  const VariableInfo& bootstrap = environment_info(Variable::kBootstrapPort);
  ports.bootstrap = number_of<uint16_t>(machine.variables.text(bootstrap.id)).value_or(0);
  // A malformed one is the environment group's.
  if (ports.bootstrap == 0) ports.bootstrap = static_cast<uint16_t>(bootstrap.default_integer);
  const auto local = machine.files.read("/proc/sys/net/ipv4/ip_local_port_range");
  const PortRanges kernel = ranges_in(local.value_or(""), "\n", " \t");
  ports.kernel_tells = local.has_value();
  ports.kernel = kernel.size() == 1 ? kernel.front() : kDefaultLocalPorts;
  ports.reserved = ranges_in(machine.files.text("/proc/sys/net/ipv4/ip_local_reserved_ports"), ",", "-");
  const auto opened = listening_ports([&](Variable id) { return machine.variables.text(id); });
  if (opened.is_ok()) ports.opened = *opened;  // malformed ones are the environment group's
  if (!ports.opened || vendor_path) ports.data.push_back(ports.kernel);
  if (ports.opened) ports.data.push_back(ports.opened->range);
  ports.data = merged(ports.data);
  return ports;
}

/// Of /proc/net/tcp and tcp6 (proc(5)), which list listeners first, so that what a long one loses is connections.
std::vector<ListeningPort> listeners_of(const FileTree& files) {
  std::vector<ListeningPort> found;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    for (const std::string& line : split(files.text(path), "\n")) {
      const std::vector<std::string> words = split(line, " \t");
      if (words.size() < 8 || words[3] != "0A") continue;
      const auto port = number_of<uint16_t>(words[1].substr(words[1].rfind(':') + 1), 16);
      if (port) found.push_back({*port, words[7]});
    }
  }
  return found;
}

uint32_t bits_of(const SocketAddress& address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr);
}

}  // namespace

std::vector<std::string> device_names(const std::vector<NetworkInterface>& all, const std::string& pattern) {
  std::vector<soft::InterfaceAddress> candidates;
  for (const NetworkInterface& interface : all) {
    const bool usable = std::ranges::any_of(interface.addresses, [](const SubnetAddress& entry) {
      return entry.address.family() == AF_INET || !entry.is_link_local();
    });
    if (pattern.empty() && (!interface.up || !usable)) continue;
    candidates.push_back({.name = interface.name,
                          .address = SocketAddress::loopback(0),
                          .up = true,
                          .loopback = interface.loopback,
                          .kind = interface.kind});
  }
  std::vector<std::string> names;
  for (const auto& chosen : soft::choose_interfaces(candidates, pattern, soft::AddressFamily::kAny)) {
    if (names.empty() || names.back() != chosen.name) names.push_back(chosen.name);
  }
  return names;
}

NetworkFacts network_facts(const Machine& machine, const std::vector<NetworkInterface>& all, const std::string& peer) {
  NetworkFacts facts{.expected = expected_path(machine), .pattern = machine.variables.text(Variable::kSocketIfname)};
  facts.ports = port_needs(machine, facts.expected.vendor_path);
  facts.listeners = listeners_of(machine.files);
  facts.peer.name = peer;
  const auto filter = [&](std::string_view name) {
    return machine.files.text(concat("/proc/sys/net/ipv4/conf/", name, "/rp_filter"));
  };
  for (const std::string& name : device_names(all, facts.pattern)) {
    facts.data.push_back(*std::ranges::find(all, name, &NetworkInterface::name));
    // The larger of the two holds; 1 is strict, 2 is loose.
    facts.data.back().strict_filter = std::max(filter("all"), filter(name)) == "1";
  }
  std::ranges::copy_if(all, std::back_inserter(facts.apart), [&](const NetworkInterface& interface) {
    const bool taken = std::ranges::count(facts.data, interface.name, &NetworkInterface::name) > 0;
    return interface.up && interface.kind.reach == Reach::kHere && !taken;
  });
  for (size_t i = 0; i < facts.data.size(); ++i) {
    for (size_t j = i + 1; j < facts.data.size(); ++j) {
      const SubnetAddress *const a = facts.data[i].ipv4(), *const b = facts.data[j].ipv4();
      if (a == nullptr || b == nullptr || a->prefix != b->prefix || a->prefix >= 31 || network_of(*a) != network_of(*b)) continue;
      facts.shared.push_back({.one = i, .other = j});
    }
  }
  return facts;
}

bool SubnetAddress::is_link_local() const {
  const std::string host = address.host();
  return host.starts_with("169.254.") || host.starts_with("fe80:");
}

const SubnetAddress* NetworkInterface::ipv4() const {
  for (const SubnetAddress& entry : addresses) {
    if (entry.address.family() == AF_INET && !entry.is_link_local()) return &entry;
  }
  return nullptr;
}

PortRanges PortNeeds::all() const {
  PortRanges ranges = data;
  ranges.push_back({bootstrap, bootstrap});
  return merged(ranges);
}

bool PortNeeds::is_reserved(uint32_t port) const {
  return std::ranges::any_of(reserved, [&](const PortRange& range) { return range.contains(port); });
}

std::string text_of(const PortRange& range, char dash) {
  return range.first == range.last ? concat(range.first) : concat(range.first, dash, range.last);
}

std::string text_of(const PortRanges& ranges, char dash, std::string_view between) {
  return joined(ranges, between, [&](const PortRange& range) { return text_of(range, dash); });
}

uint32_t network_of(const SubnetAddress& entry) {
  return entry.prefix == 0 ? 0 : bits_of(entry.address) & ~uint32_t{0} << (32 - entry.prefix);
}

}  // namespace tcpx::doctor
