// Addresses of the data interfaces, and whether replies leave where they should.
#include <algorithm>

#include "base/text.h"
#include "programs/doctor/network.h"

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

Finding check_own_address(const NetworkInterface& interface, bool vendor_path) {
  const std::string check = concat("address[", interface.name, "]");
  if (!interface.up) {
    return fail(check, "it is down or has no carrier", "A device that is down is missing, and its share of the rate with it.",
                concat("ip link set ", interface.name, " up"));
  }
  if (const InterfaceAddress* const address = interface.ipv4()) return ok(check, address_text(*address));
  const auto other = std::find_if(interface.addresses.begin(), interface.addresses.end(),
                                  [](const InterfaceAddress& entry) { return !is_link_local(entry.address); });
  const bool v6 = other != interface.addresses.end();
  if (v6 && !vendor_path) return ok(check, concat(address_text(*other), ", no IPv4"));
  return fail(check,
              v6                            ? concat("only IPv6: ", address_text(*other))
              : interface.addresses.empty() ? "it has no address"
                                            : concat("only a link-local one: ", address_text(interface.addresses.front())),
              v6 ? "RxDM steers flows of GPUDirect-TCPX by their IPv4 addresses."
                 : "Another host cannot reach it, so connections over this device fail.",
              concat("ip address add ADDRESS/PREFIX dev ", interface.name, "   # or let DHCP give it one"));
}

/// Bridges of containers have the same address on every host.
Finding check_bridges(const NetworkFacts& facts) {
  std::vector<NetworkInterface> bridges, others;
  for (const NetworkInterface& interface : facts.data) (interface.bridge ? bridges : others).push_back(interface);
  const bool good = bridges.empty() || others.empty();
  return judged(good, Verdict::kWarn, "bridges",
                good ? concat("none among the data interfaces (", names_of(facts.data), ")")
                     : concat(names_of(bridges), " would carry data besides ", names_of(others)),
                "A bridge for containers leads to no other host, and every host has the same address on it.",
                concat("export ", kIfname, "='=", names_of(others, ","), "'"));
}

Finding check_subnet(const NetworkFacts& facts, const SharedNetwork& shared) {
  const NetworkInterface &one = facts.data[shared.one], &other = facts.data[shared.other];
  const std::string check = concat("subnet[", one.name, ",", other.name, "]");
  const std::string found = concat(address_text(*one.ipv4()), " and ", address_text(*other.ipv4()), " are in the same network");
  if (shared.one_is_used && shared.other_is_used) return ok(check, concat(found, ", and each sends through its own interface"));
  const size_t strayed = shared.one_is_used ? shared.other : shared.one;
  return warn(check,
              concat(found, "; packets of ", facts.data[strayed].ipv4()->address.host(), " leave by another interface than ",
                     facts.data[strayed].name),
              "Replies of one leave through the other: both share one wire, and strict filters drop them.",
              own_route(facts, strayed));
}

Finding check_reverse_path(const NetworkFacts& facts) {
  if (facts.data.size() < 2) {
    return not_applicable("rp_filter", concat(facts.data.size(), " data interface"),
                          "Strict reverse-path filters matter with several.");
  }
  std::vector<NetworkInterface> strict;
  std::copy_if(facts.data.begin(), facts.data.end(), std::back_inserter(strict), [](const auto& it) { return it.strict_filter; });
  return judged(strict.empty(), Verdict::kWarn, "rp_filter",
                strict.empty() ? "not strict on any data interface" : concat("strict on ", names_of(strict)),
                "Packets that come in by another interface than the kernel would answer through are dropped in silence.",
                "sysctl -w net.ipv4.conf.all.rp_filter=2");
}

Finding check_loopback(const NetworkFacts& facts) {
  const bool only_loopback = std::all_of(facts.data.begin(), facts.data.end(), [](const auto& entry) { return entry.loopback; });
  const auto& route = facts.peer.usual;
  const bool peer_is_here = route && route->is_ok() && (*route)->local;
  if (!peer_is_here && !only_loopback) return ok("loopback", "data leaves this machine");
  const std::string found = peer_is_here ? concat(facts.peer.name, " is this machine itself")
                                         : concat("data goes over ", names_of(facts.data), " only");
  if (!facts.expected.vendor_path) return ok("loopback", concat(found, ", which the software plugin can do"));
  return fail("loopback", found,
              concat("GPUDirect-TCPX is expected here (", facts.expected.because,
                     "), and the NIC's path to GPU memory does not exist over loopback."),
              peer_is_here ? "tcpx_doctor --peer ADDRESS   # of the other host's data interface"
                           : concat("export ", kIfname, "=eth1,eth2,eth3,eth4   # the data NICs that `ip -br address` shows"));
}

}  // namespace

void check_addresses(const NetworkFacts& facts, Findings& findings) {
  if (facts.data.empty()) {
    findings.push_back(fail("addresses", concat("no interface matches ", kIfname, "=", facts.pattern),
                            "Without a data interface there is no device, and no connection.", concat("unset ", kIfname)));
    return;
  }
  for (const NetworkInterface& interface : facts.data) {
    findings.push_back(check_own_address(interface, facts.expected.vendor_path));
  }
  if (facts.pattern.empty()) findings.push_back(check_bridges(facts));
  for (const SharedNetwork& shared : facts.shared) findings.push_back(check_subnet(facts, shared));
  findings.push_back(check_reverse_path(facts));
  findings.push_back(check_loopback(facts));
}

}  // namespace tcpx::doctor
