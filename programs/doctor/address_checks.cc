// Addresses of the data interfaces, and whether replies leave where they should.
#include <arpa/inet.h>

#include <algorithm>

#include "base/text.h"
#include "programs/doctor/network_facts.h"

namespace tcpx::doctor {
namespace {

constexpr std::string_view kIfname = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME";

std::string address_text(const InterfaceAddress& entry) {
  return concat(entry.address.host(), '/', entry.prefix);
}

bool is_link_local(const SocketAddress& address) {
  const std::string host = address.host();
  return host.starts_with("169.254.") || host.starts_with("fe80:");
}

Finding check_address(const NetworkInterface& interface, bool vendor_path) {
  const std::string check = concat("address[", interface.name, "]");
  const std::string set = concat("ip address add ADDRESS/PREFIX dev ", interface.name, "   # or let DHCP give it one");
  if (!interface.up) {
    return fail(check, "it is down or has no carrier", "A device that is down is missing, and its share of the rate with it.",
                concat("ip link set ", interface.name, " up"));
  }
  if (const InterfaceAddress* const address = ipv4_of(interface)) return ok(check, address_text(*address));
  const auto other = std::find_if(interface.addresses.begin(), interface.addresses.end(),
                                  [](const InterfaceAddress& entry) { return !is_link_local(entry.address); });
  if (other != interface.addresses.end() && !vendor_path) return ok(check, concat(address_text(*other), ", no IPv4"));
  const std::string found = other != interface.addresses.end() ? concat("only IPv6: ", address_text(*other))
                            : interface.addresses.empty()
                                ? std::string("it has no address")
                                : concat("only a link-local one: ", address_text(interface.addresses.front()));
  return fail(check, found,
              other != interface.addresses.end() ? "RxDM steers flows of GPUDirect-TCPX by their IPv4 addresses."
                                                 : "Another host cannot reach it, so connections over this device fail.",
              set);
}

/// Bridges of containers have the same address on every host.
void check_bridges(const Machine& machine, const NetworkFacts& facts, Findings& findings) {
  if (facts.chosen) return;
  std::vector<NetworkInterface> bridges, others;
  for (const NetworkInterface& interface : facts.data) {
    (machine.files.exists(concat("/sys/class/net/", interface.name, "/bridge")) ? bridges : others).push_back(interface);
  }
  if (bridges.empty() || others.empty()) {
    findings.push_back(ok("bridges", concat("none among the data interfaces (", names_of(facts.data), ")")));
    return;
  }
  findings.push_back(warn("bridges", concat(names_of(bridges), " would carry data besides ", names_of(others)),
                          "A bridge for containers leads to no other host, and every host has the same address on it.",
                          concat("export ", kIfname, "='=", names_of(others, ","), "'")));
}

void check_subnets(const NetworkFacts& facts, NetworkSource& source, Findings& findings) {
  for (size_t i = 0; i < facts.data.size(); ++i) {
    for (size_t j = i + 1; j < facts.data.size(); ++j) {
      const NetworkInterface &one = facts.data[i], &other = facts.data[j];
      const InterfaceAddress *const a = ipv4_of(one), *const b = ipv4_of(other);
      if (a == nullptr || b == nullptr || a->prefix != b->prefix || a->prefix >= 31 || network_of(*a) != network_of(*b)) continue;
      // Somebody else in that network; which one does not matter.
      sockaddr_in somebody{};
      somebody.sin_family = AF_INET;
      uint32_t host = network_of(*a) + 1;
      while (host == bits_of(a->address) || host == bits_of(b->address)) ++host;
      somebody.sin_addr.s_addr = htonl(host);
      const auto target = SocketAddress::from(reinterpret_cast<const sockaddr*>(&somebody), sizeof somebody);
      const Result<Route> from_a = source.route(*target, &a->address), from_b = source.route(*target, &b->address);
      const std::string check = concat("subnet[", one.name, ",", other.name, "]");
      const std::string found = concat(address_text(*a), " and ", address_text(*b), " are in the same network");
      if (from_a.is_ok() && from_b.is_ok() && from_a->interface == one.name && from_b->interface == other.name) {
        findings.push_back(ok(check, concat(found, ", and each sends through its own interface")));
        continue;
      }
      const bool first = !(from_a.is_ok() && from_a->interface == one.name);
      const InterfaceAddress& its = first ? *a : *b;
      findings.push_back(warn(
          check,
          concat(found, "; packets of ", its.address.host(), " leave by another interface than ", first ? one.name : other.name),
          "Replies of one leave through the other: both share one wire, and strict filters drop them.",
          own_route(facts, first ? i : j, its)));
    }
  }
}

void check_reverse_path(const Machine& machine, const NetworkFacts& facts, Findings& findings) {
  if (facts.data.size() < 2) {
    findings.push_back(not_applicable("rp_filter", concat(facts.data.size(), " data interface"),
                                      "Strict reverse-path filters matter with several."));
    return;
  }
  const auto mode = [&](std::string_view interface) {
    return machine.files.read(concat("/proc/sys/net/ipv4/conf/", interface, "/rp_filter")).value_or("0");
  };
  std::string strict;
  // The larger of the two holds; 2 is loose.
  for (const NetworkInterface& interface : facts.data) {
    if (std::max(mode("all"), mode(interface.name)) == "1") strict += concat(strict.empty() ? "" : ", ", interface.name);
  }
  if (strict.empty()) {
    findings.push_back(ok("rp_filter", "not strict on any data interface"));
  } else {
    findings.push_back(
        warn("rp_filter", concat("strict on ", strict),
             "Packets that come in by another interface than the kernel would answer through are dropped in silence.",
             "sysctl -w net.ipv4.conf.all.rp_filter=2"));
  }
}

void check_loopback(const NetworkFacts& facts, NetworkSource& source, Findings& findings) {
  const bool only_loopback = !facts.data.empty() && std::all_of(facts.data.begin(), facts.data.end(),
                                                                [](const NetworkInterface& entry) { return entry.loopback; });
  const auto address = facts.peer.empty() ? Result<std::vector<SocketAddress>>(std::vector<SocketAddress>())
                                          : resolve(facts.peer, facts.ports.bootstrap);
  bool peer_is_here = false;
  if (address.is_ok() && !address->empty()) {
    const Result<Route> route = source.route(address->front(), nullptr);
    peer_is_here = route.is_ok() && route->local;
  }
  const std::string found = peer_is_here    ? concat(facts.peer, " is this machine itself")
                            : only_loopback ? concat("data goes over ", names_of(facts.data), " only")
                                            : std::string("data leaves this machine");
  if (!facts.expected.vendor_path || !(peer_is_here || only_loopback)) {
    findings.push_back(
        ok("loopback", peer_is_here || only_loopback ? concat(found, ", which the software plugin can do") : found));
    return;
  }
  findings.push_back(
      fail("loopback", found,
           concat("GPUDirect-TCPX is expected here (", facts.expected.because,
                  "), and the NIC's path to GPU memory does not exist over loopback."),
           peer_is_here ? "tcpx_doctor --peer ADDRESS   # of the other host's data interface"
                        : concat("export ", kIfname, "=eth1,eth2,eth3,eth4   # the data NICs that `ip -br address` shows")));
}

}  // namespace

void check_addresses(const Machine& machine, const NetworkFacts& facts, NetworkSource& source, Findings& findings) {
  if (facts.data.empty()) {
    findings.push_back(fail("addresses", concat("no interface matches ", kIfname, "=", machine.variable(kIfname).value_or("")),
                            "Without a data interface there is no device, and no connection.", concat("unset ", kIfname)));
    return;
  }
  for (const NetworkInterface& interface : facts.data) findings.push_back(check_address(interface, facts.expected.vendor_path));
  check_bridges(machine, facts, findings);
  check_subnets(facts, source, findings);
  check_reverse_path(machine, facts, findings);
  check_loopback(facts, source, findings);
}

}  // namespace tcpx::doctor
