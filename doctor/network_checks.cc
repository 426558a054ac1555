// Ports that can be listened on; addresses of the data interfaces, and replies that leave where they should; and the way to
// another host, by data interface.
//
// Interfaces of a machine may lie in networks that do not know each other (on A3 each NIC has its own): an address of the peer is
// then reached from one interface only, and the others have nothing to say about it. The kernel's routes tell.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "doctor/network.h"
#include "doctor/words.h"

namespace tcpx::doctor {
namespace {

// Connections take several ports each; with fewer than these a few peers use them up.
constexpr uint32_t kFewPorts = 2000;
// The kernel's own range overlaps the usual one, so that a busy machine has connections on many of its ports. That is well while
// one of this many can be bound.
constexpr size_t kFewOf = 4;
// Every channel of a connection that is being made listens at both ends, and so does every Endpoint. A host of eight GPUs that
// makes a connection from each at once needs this many.
constexpr uint32_t kFewOpened = 100;
constexpr std::string_view kIfname = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME";
// Of routing tables that the mended routes go to; the kernel's own are 0 and 253 to 255.
constexpr size_t kFirstTable = 100;

std::string change_port(uint32_t port) {
  return concat("export UCCL_TCPX_BOOTSTRAP_PORT=", port, "   # the same at both ends");
}
std::string set_local_ports(const PortRange& range) {
  return concat("sysctl -w net.ipv4.ip_local_port_range='", text_of(range, ' '), "'");
}

Finding check_bootstrap(const NetworkFacts& facts) {
  const uint16_t port = facts.ports.bootstrap;
  const std::string check = concat("port[", port, "]");
  const int error = facts.binds.bootstrap_error;
  if (error == 0) return ok(check, "free");
  const std::string mend = change_port(facts.binds.free_port);
  if (error != EADDRINUSE) {
    return fail(check, concat("cannot be bound: ", std::strerror(error)),
                "A server that waits for connection handles there ends with this error.", mend);
  }
  const auto listener = std::ranges::find(facts.listeners, port, &ListeningPort::port);
  return warn(check,
              listener != facts.listeners.end() ? concat("a program of user id ", listener->user, " listens there")
                                                : "taken by a connection, or by a listener in no list",
              "A server that waits for connection handles there ends with \"address already in use\".",
              concat(mend, "; who has it: ss -ltnp 'sport = :", port, "', which needs root for other users' programs"));
}

Finding check_range(const NetworkFacts& facts) {
  const PortRange range = facts.ports.opened ? facts.ports.opened->range : kUsualPorts;
  const auto [bootstrap_error, free_port, tried, bound, error] = facts.binds;
  const auto taken = std::ranges::count_if(facts.listeners, [&](const auto& it) { return range.contains(it.port); });
  return judged(bound * kFewOf >= tried && bound > 0, bound == 0 ? Verdict::kFail : Verdict::kWarn,
                concat("ports[", text_of(range), "]"),
                concat(bound, " of ", tried, " tried can be bound, ", taken, taken == 1 ? " listener" : " listeners",
                       " in the range", error != 0 ? concat("; the last refusal: ", std::strerror(error)) : ""),
                "Firewalls for GPUDirect-TCPX are opened for this range; a job that keeps to it needs free ports in it.",
                concat("ss -tanp '( sport >= :", range.first, " and sport <= :", range.last,
                       " )'   # who has them; end what is not needed"));
}

Findings check_local_ports(const NetworkFacts& facts) {
  const PortNeeds& ports = facts.ports;
  if (!ports.kernel_tells) {
    return {not_applicable("local_ports", "there is no /proc/sys/net/ipv4/ip_local_port_range",
                           "Without it nobody knows which ports the kernel gives to listeners.")};
  }
  uint32_t usable = 0;
  for (uint32_t port = ports.kernel.first; port <= ports.kernel.last; ++port) usable += ports.is_reserved(port) ? 0 : 1;
  const bool given = ports.kernel.contains(ports.bootstrap) && !ports.is_reserved(ports.bootstrap);
  return {warn_unless(usable >= kFewPorts, "local_ports",
                      concat("the kernel gives ", ports.opened && !facts.expected.vendor_path ? "connections" : "listeners",
                             " ports of ", text_of(ports.kernel), ", ", usable, " of them not reserved"),
                      "Each connection takes several; when none is left, connecting fails.",
                      ports.kernel.count() < kFewPorts
                          ? set_local_ports({32768, 60999})
                          : "sysctl -w net.ipv4.ip_local_reserved_ports=''   # or fewer of them than now"),
          warn_unless(!given, "bootstrap_reserved",
                      given ? concat(ports.bootstrap, " is one of the ports that the kernel gives to anybody")
                            : concat("the kernel gives ", ports.bootstrap, " to nobody unasked"),
                      "Any outgoing connection may hold it when a server wants to listen there.",
                      concat("sysctl -w net.ipv4.ip_local_reserved_ports='", text_of(ports.reserved, '-', ","),
                             ports.reserved.empty() ? "" : ",", ports.bootstrap, "'"))};
}

/// The range that the user has opened for listeners, against what listens.
Findings check_opened(const NetworkFacts& facts) {
  const ListeningPorts& opened = *facts.ports.opened;
  const bool inside = opened.range.contains(facts.ports.bootstrap);
  Findings findings = {
      warn_unless(opened.range.count() >= kFewOpened, "port_range",
                  concat(opened.range.count(), " ports for listeners, by ", opened.wish),
                  "Each channel of a connection listens while it is made; then none is left.",
                  concat("export ", environment_info(Variable::kPortRange).name, "=", text_of(kUsualPorts),
                         "   # as your firewall has it")),
      warn_unless(inside, "bootstrap_in_range",
                  concat(facts.ports.bootstrap, inside ? " is one of them" : concat(" is outside ", opened.wish)),
                  "It is listened on all the same, because clients must know it, and a firewall may keep them out.",
                  change_port(opened.range.first))};
  if (!facts.expected.vendor_path) return findings;
  const bool within = opened.range.contains(facts.ports.kernel.first) && opened.range.contains(facts.ports.kernel.last);
  append(findings, {warn_unless(within, "vendor_ports",
                                concat("GPUDirect-TCPX listens on ports that the kernel picks out of ",
                                       text_of(facts.ports.kernel), within ? "" : concat(", whatever ", opened.wish, " says")),
                                "It reads no variable about ports: where only that range is open, its connections time out.",
                                set_local_ports(opened.range))});
  return findings;
}

std::string address_text(const SubnetAddress& entry) {
  return concat(entry.address.host(), '/', entry.prefix);
}

Finding check_own_address(const NetworkInterface& interface, bool vendor_path) {
  const std::string check = concat("address[", interface.name, "]");
  if (!interface.up) {
    return fail(check, "it is down or has no carrier", "A device that is down is missing, and its share of the rate with it.",
                concat("ip link set ", interface.name, " up"));
  }
  if (const SubnetAddress* const address = interface.ipv4()) return ok(check, address_text(*address));
  const auto other = std::ranges::find_if(interface.addresses, [](const auto& entry) { return !entry.is_link_local(); });
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

/// Bridges of containers have the same address on every host. GPUDirect-TCPX leaves out those called docker alone.
Finding check_bridges(const NetworkFacts& facts) {
  const bool good = facts.apart.empty() || !facts.expected.vendor_path;
  std::string names;
  for (const NetworkInterface& each : facts.apart)
    names.append(concat(names.empty() ? "" : ", ", describe_interface(each.name, each.kind)));
  return warn_unless(good, "bridges",
                     facts.apart.empty() ? concat("none besides the data interfaces (", names_of(facts.data), ")")
                     : good              ? concat(names, " carries no data: it leads to no other host")
                                         : concat(names, " would carry data besides ", names_of(facts.data)),
                     "A bridge for containers leads to no other host, and every host has the same address on it.",
                     concat("export ", kIfname, "='=", names_of(facts.data, ","), "'"));
}

/// Commands by which packets from the address of data interface `idx` leave by that interface.
std::string own_route(const NetworkFacts& facts, size_t idx) {
  const SubnetAddress& entry = *facts.data.at(idx).ipv4();
  const uint32_t bits = network_of(entry);
  const std::string network = concat(bits >> 24, '.', bits >> 16 & 255, '.', bits >> 8 & 255, '.', bits & 255, '/', entry.prefix);
  const std::string table = concat(kFirstTable + idx), address = entry.address.host();
  return concat("ip route add ", network, " dev ", facts.data.at(idx).name, " src ", address, " table ", table,
                " && ip rule add from ", address, " table ", table);
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
  std::ranges::copy_if(facts.data, std::back_inserter(strict), &NetworkInterface::strict_filter);
  return warn_unless(strict.empty(), "rp_filter",
                     strict.empty() ? "not strict on any data interface" : concat("strict on ", names_of(strict)),
                     "Packets that come in by another interface than the kernel would answer through are dropped in silence.",
                     "sysctl -w net.ipv4.conf.all.rp_filter=2");
}

Finding check_loopback(const NetworkFacts& facts) {
  const bool only_loopback = std::ranges::all_of(facts.data, &NetworkInterface::loopback);
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

/// Of a data interface that does not lead to the peer.
Finding check_no_way(const NetworkFacts& facts, const PeerRoute& entry) {
  const NetworkInterface& interface = facts.data[entry.idx];
  const SubnetAddress& own = *interface.ipv4();
  const std::string check = concat("peer[", interface.name, "]");
  const std::string& name = facts.peer.name;
  const bool in_network = own.prefix < 32 && network_of(own) == network_of({*facts.peer.address, own.prefix});
  if (!in_network) {
    return not_applicable(
        check, concat("the way to ", name, " is ", (*facts.peer.usual)->interface, ", not ", interface.name),
        concat("Give --peer the address that the other host has in the network of ", interface.name, " to test this one."));
  }
  return warn(check,
              concat(name, " is in the network of ", interface.name, ", but packets from ", own.address.host(),
                     entry.route.is_ok() ? concat(" leave by ", entry.route->interface) : " have no route"),
              "This device's traffic takes another device's wire, or is dropped by strict filters.", own_route(facts, entry.idx));
}

Finding check_way(const NetworkFacts& facts, const PeerWay& way) {
  const std::string check = concat("peer[", way.interface, "]");
  const std::string from = way.source.host();
  const uint16_t port = facts.ports.bootstrap;
  if (way.reached()) {
    return ok(check, way.connected.is_ok() ? concat("reached from ", from, "; port ", port, " is listened on")
                                           : concat("reached from ", from, "; nobody listens on port ", port, " now"));
  }
  if (way.connected.code() == Code::kTimeout) {
    return fail(check, concat("no answer within 2 s to TCP from ", from, " to port ", port),
                "A firewall on the way drops it, or the host is not there.",
                concat("allow TCP ", text_of(facts.ports.all()), " from ", from, " to ", facts.peer.name,
                       " in the cloud's firewall, then on the peer: tcpx_doctor --only network"));
  }
  return fail(check, concat("not reached from ", from, ": ", way.connected.detail()), "Connections over this device fail.",
              concat("ip route get ", facts.peer.name, " from ", from, " && ip neigh show dev ", way.interface));
}

Finding check_path(const PeerWay& way, const std::string& peer) {
  const std::string check = concat("path_mtu[", way.interface, "]");
  const int mtu = way.mtu, path_mtu = way.path->path_mtu;
  const PathAnswer answer = way.path->answer;
  if (answer == PathAnswer::kArrives) return ok(check, concat("packets of ", mtu, " bytes arrive whole"));
  if (answer == PathAnswer::kTooLong) {
    return warn(check, concat("the path carries ", path_mtu, " bytes, the interface sends ", mtu),
                "TCP falls back to shorter packets after losing some; header split wants the same size all the way.",
                concat("ip route add ", peer, " dev ", way.interface, " mtu ", path_mtu,
                       "   # or the same MTU at both hosts and in the network"));
  }
  if (answer == PathAnswer::kSilent) {
    return not_applicable(check, concat("the kernel knows of no limit below ", path_mtu > 0 ? path_mtu : mtu, " bytes"),
                          "The peer answers no datagrams to closed ports, so nobody can tell whether full packets arrive.");
  }
  return fail(
      check, concat("short packets arrive, those of ", mtu, " bytes vanish without a word"),
      "Connections are made and then hang with the first large message.",
      concat("ip link set ", way.interface, " mtu 1460   # and upwards, to the largest that arrives; the same at both hosts"));
}

Findings check_addresses(const NetworkFacts& facts) {
  if (facts.data.empty() && facts.pattern.empty()) {
    return {fail("addresses", "no interface is up and has an address",
                 "Without a data interface there is no device, and no connection, not even within this machine.",
                 kBringUpAnInterface)};
  }
  if (facts.data.empty()) {
    return {fail("addresses", concat("no interface matches ", kIfname, "=", facts.pattern),
                 "Without a data interface there is no device, and no connection.", concat("unset ", kIfname))};
  }
  Findings findings;
  for (const NetworkInterface& interface : facts.data)
    findings.push_back(check_own_address(interface, facts.expected.vendor_path));
  if (facts.pattern.empty()) findings.push_back(check_bridges(facts));
  for (const SharedNetwork& shared : facts.shared) findings.push_back(check_subnet(facts, shared));
  append(findings, {check_reverse_path(facts), check_loopback(facts)});
  return findings;
}

Findings check_peer(const NetworkFacts& facts) {
  const PeerFacts& peer = facts.peer;
  if (peer.name.empty()) return {not_applicable("peer", "no other host was named", "Say which one with --peer IP.")};
  if (!peer.address || !peer.usual) {
    return {fail("peer", concat(peer.name, " is no IPv4 address"), "Only an address tells which interface is meant.",
                 "tcpx_doctor --peer 10.0.0.2   # an address that `ip -br address` shows there")};
  }
  if (!peer.usual->is_ok()) {
    return {fail("peer", concat("no route to ", peer.name, ": ", peer.usual->status().detail()), "Nothing can be sent there.",
                 concat("ip route add ", peer.name, " via GATEWAY   # or bring up the interface of its network"))};
  }
  const Route& usual = **peer.usual;
  if (usual.local) {
    return {not_applicable("peer", concat(peer.name, " is this machine itself"),
                           "Its packets never leave it, so they tell nothing about the network.")};
  }
  const bool over_data = std::ranges::count(facts.data, usual.interface, &NetworkInterface::name) > 0;
  Findings findings = {warn_unless(over_data, "peer",
                                   concat(peer.name, " is reached through ", usual.interface, " from ", usual.source,
                                          over_data ? "" : concat(", which is no data interface (", names_of(facts.data), ")")),
                                   "Connections can be arranged over it, but no data goes there.",
                                   "tcpx_doctor --peer ADDRESS   # of the other host in the network of a data interface")};
  for (const PeerWay& way : peer.ways) findings.push_back(check_way(facts, way));
  for (const PeerWay& way : peer.ways) {
    if (way.path) findings.push_back(check_path(way, peer.name));
  }
  for (const PeerRoute& entry : peer.routes) {
    const bool leads = entry.route.is_ok() && entry.route->interface == facts.data[entry.idx].name;
    if (!leads) findings.push_back(check_no_way(facts, entry));
  }
  return findings;
}

}  // namespace

bool PeerWay::reached() const {
  const bool refused =
      connected.domain() == Domain::kErrno && (connected.native() == ECONNREFUSED || connected.native() == ECONNRESET);
  return connected.is_ok() || refused;
}

Findings check_network(const NetworkFacts& facts) {
  Findings findings = {check_bootstrap(facts), check_range(facts)};
  if (facts.ports.opened) append(findings, check_opened(facts));
  for (const auto check : {check_local_ports, check_addresses, check_firewall, check_peer}) append(findings, check(facts));
  return findings;
}

}  // namespace tcpx::doctor
