#include "programs/doctor/network_checks.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.h"
#include "net/soft/interfaces.h"
#include "programs/doctor/network_facts.h"

namespace tcpx::doctor {
namespace {

// The kernel's own defaults (Documentation/networking/ip-sysctl.rst).
constexpr PortRange kDefaultLocalPorts{32768, 60999};
// Of routing tables that the mended routes go to; the kernel's own are 0 and 253 to 255.
constexpr size_t kFirstTable = 100;

/// Two numbers with white space between.
std::optional<PortRange> read_range(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  PortRange range;
  const char* const end = text->data() + text->size();
  const auto first = std::from_chars(text->data(), end, range.first);
  const char* next = first.ptr;
  while (next != end && (*next == ' ' || *next == '\t')) ++next;
  if (first.ec != std::errc() || std::from_chars(next, end, range.last).ec != std::errc()) return std::nullopt;
  return range.first <= range.last ? std::optional(range) : std::nullopt;
}

/// Names of the interfaces that the plugins make devices of.
std::vector<std::string> device_names(const std::vector<NetworkInterface>& all, const std::string& pattern) {
  std::vector<soft::InterfaceAddress> candidates;
  for (const NetworkInterface& interface : all) {
    // A named one counts although it is down or has no address: that is what is to be found out.
    const bool usable = std::any_of(interface.addresses.begin(), interface.addresses.end(), [](const InterfaceAddress& entry) {
      return entry.address.family() == AF_INET || !entry.address.host().starts_with("fe80:");
    });
    if (pattern.empty() && !(interface.up && usable)) continue;
    candidates.push_back({.name = interface.name,
                          .address = SocketAddress::loopback(0),
                          .up = true,
                          .loopback = interface.loopback,
                          .link_local = false});
  }
  std::vector<std::string> names;
  for (const auto& device : soft::choose_interfaces(candidates, pattern, soft::AddressFamily::kAny)) {
    if (names.empty() || names.back() != device.name) names.push_back(device.name);
  }
  return names;
}

uint16_t bootstrap_port(const Machine& machine) {
  const VariableInfo& info = environment_info(Variable::kBootstrapPort);
  const std::string text = machine.variable(info.id).value_or("");
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool good = error == std::errc() && end == text.data() + text.size() && port > 0;
  return good ? port : static_cast<uint16_t>(info.default_integer);  // malformed ones are the environment group's
}

/// In order; those that meet become one.
PortRanges joined(PortRanges ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const PortRange& a, const PortRange& b) { return a.first < b.first; });
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
  ports.bootstrap = bootstrap_port(machine);
  ports.kernel = read_range(machine.files.read("/proc/sys/net/ipv4/ip_local_port_range")).value_or(kDefaultLocalPorts);
  const auto opened = listening_ports([&](Variable id) { return machine.variable(id).value_or(""); });
  if (opened.is_ok()) ports.opened = *opened;  // malformed ones are the environment group's
  if (!ports.opened || vendor_path) ports.data.push_back(ports.kernel);
  if (ports.opened) ports.data.push_back(ports.opened->range);
  ports.data = joined(ports.data);
  return ports;
}

}  // namespace

NetworkFacts network_facts(const Machine& machine, const std::vector<NetworkInterface>& all, const std::string& peer) {
  const std::string pattern = machine.variable(Variable::kSocketIfname).value_or("");
  const Expectation expected = expected_path(machine);
  NetworkFacts facts{.expected = expected,
                     .ports = port_needs(machine, expected.vendor_path),
                     .chosen = !pattern.empty(),
                     .data = {},
                     .peer = peer};
  for (const std::string& name : device_names(all, pattern)) {
    facts.data.push_back(*std::find_if(all.begin(), all.end(), [&](const auto& interface) { return interface.name == name; }));
  }
  return facts;
}

PortRanges PortNeeds::all() const {
  PortRanges ranges = data;
  ranges.push_back({bootstrap, bootstrap});
  return joined(ranges);
}

std::string text_of(const PortRange& range, char dash) {
  return range.first == range.last ? concat(range.first) : concat(range.first, dash, range.last);
}

std::string text_of(const PortRanges& ranges, char dash, std::string_view between) {
  std::string text;
  for (const PortRange& range : ranges) text += concat(text.empty() ? "" : between, text_of(range, dash));
  return text;
}

std::string names_of(const std::vector<NetworkInterface>& interfaces, std::string_view between) {
  std::string names;
  for (const NetworkInterface& interface : interfaces) names += concat(names.empty() ? "" : between, interface.name);
  return names;
}

const InterfaceAddress* ipv4_of(const NetworkInterface& interface) {
  for (const InterfaceAddress& entry : interface.addresses) {
    if (entry.address.family() == AF_INET && !entry.address.host().starts_with("169.254.")) return &entry;
  }
  return nullptr;
}

uint32_t bits_of(const SocketAddress& address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr);
}

uint32_t network_of(const InterfaceAddress& entry) {
  return entry.prefix == 0 ? 0 : bits_of(entry.address) & ~uint32_t{0} << (32 - entry.prefix);
}

std::string own_route(const NetworkFacts& facts, size_t idx, const InterfaceAddress& entry) {
  const uint32_t bits = network_of(entry);
  const std::string network = concat(bits >> 24, '.', bits >> 16 & 255, '.', bits >> 8 & 255, '.', bits & 255, '/', entry.prefix);
  const std::string table = concat(kFirstTable + idx), address = entry.address.host();
  return concat("ip route add ", network, " dev ", facts.data.at(idx).name, " src ", address, " table ", table,
                " && ip rule add from ", address, " table ", table);
}

Findings check_network(const Machine& machine, NetworkSource& source, const std::string& peer) {
  Findings findings;
  const NetworkFacts facts = network_facts(machine, source.interfaces(), peer);
  check_ports(machine, facts, source, findings);
  check_addresses(machine, facts, source, findings);
  check_firewall(facts, source, findings);
  check_peer(machine, facts, source, findings);
  return findings;
}

}  // namespace tcpx::doctor
