// Ports that can be listened on; addresses of the data interfaces, and replies that leave where they should; and the way to
// another host, by data interface.
//
// Interfaces of a machine may lie in networks that do not know each other (on A3 each NIC has its own): an address of the peer is
// then reached from one interface only, and the others have nothing to say about it. The kernel's routes tell.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "base/words.h"
#include "doctor/network.h"

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

std::string set_local_ports(const PortRange& range) {
  return concat("sysctl -w net.ipv4.ip_local_port_range='", text_of(range, ' '), "'");
}

Findings check_ports(const NetworkFacts& facts) {
  const PortNeeds& ports = facts.ports;
  const uint16_t port = ports.bootstrap;
  const PortRange range = ports.opened ? ports.opened->range : kUsualPorts;
  const auto& [bootstrap_error, free_port, tried, bound, last_error] = facts.binds;
  const auto change_port = [](uint32_t to) {
    return concat("export UCCL_TCPX_BOOTSTRAP_PORT=", to, "   # the same at both ends");
  };
  const auto listener = std::ranges::find(facts.listeners, port, &ListeningPort::port);
  const auto taken = std::ranges::count_if(facts.listeners, [&](const auto& it) { return range.contains(it.port); });
  uint32_t usable = 0;
  for (uint32_t each = ports.kernel.first; each <= ports.kernel.last; ++each) usable += ports.is_reserved(each) ? 0 : 1;
  const bool given = ports.kernel.contains(port) && !ports.is_reserved(port);
  const std::string check = concat("port[", port, "]");
  Table table = {
      {check, concat("cannot be bound: ", std::strerror(bootstrap_error)), bootstrap_error == 0 || bootstrap_error == EADDRINUSE,
       kFail, "A server that waits for connection handles there ends with this error.", change_port(free_port)},
      {check,
       listener != facts.listeners.end() ? concat("a program of user id ", listener->user, " listens there")
                                         : "taken by a connection, or by a listener in no list",
       bootstrap_error == 0, kWarn, "A server that waits for connection handles there ends with \"address already in use\".",
       concat(change_port(free_port), "; who has it: ss -ltnp 'sport = :", port,
              "', which needs root for other users' programs")},
      {check, "free"},
      {concat("ports[", text_of(range), "]"),
       concat(bound, " of ", tried, " tried can be bound, ", taken, taken == 1 ? " listener" : " listeners", " in the range",
              last_error != 0 ? concat("; the last refusal: ", std::strerror(last_error)) : ""),
       bound * kFewOf >= tried && bound > 0, bound == 0 ? kFail : kWarn,
       "Firewalls for GPUDirect-TCPX are opened for this range; a job that keeps to it needs free ports in it.",
       concat("ss -tanp '( sport >= :", range.first, " and sport <= :", range.last,
              " )'   # who has them; end what is not needed")}};
  if (ports.opened) {
    const bool inside = range.contains(port);
    const std::string& wish = ports.opened->wish;
    append(table, {{"port_range", concat(range.count(), " ports for listeners, by ", wish), range.count() >= kFewOpened, kWarn,
                    "Each channel of a connection listens while it is made; then none is left.",
                    concat("export ", environment_info(Variable::kPortRange).name, "=", text_of(kUsualPorts),
                           "   # as your firewall has it")},
                   {"bootstrap_in_range", concat(port, inside ? " is one of them" : concat(" is outside ", wish)), inside, kWarn,
                    "It is listened on all the same, because clients must know it, and a firewall may keep them out.",
                    change_port(range.first)}});
    const bool within = range.contains(ports.kernel.first) && range.contains(ports.kernel.last);
    if (facts.expected.vendor_path) {
      table.push_back({"vendor_ports",
                       concat("GPUDirect-TCPX listens on ports that the kernel picks out of ", text_of(ports.kernel),
                              within ? "" : concat(", whatever ", wish, " says")),
                       within, kWarn,
                       "It reads no variable about ports: where only that range is open, its connections time out.",
                       set_local_ports(range)});
    }
  }
  append(table,
         {{"local_ports", "there is no /proc/sys/net/ipv4/ip_local_port_range", ports.kernel_tells, kNotApplicable,
           "Without it nobody knows which ports the kernel gives to listeners."},
          {"local_ports",
           concat("the kernel gives ", ports.opened && !facts.expected.vendor_path ? "connections" : "listeners", " ports of ",
                  text_of(ports.kernel), ", ", usable, " of them not reserved"),
           usable >= kFewPorts, kWarn, "Each connection takes several; when none is left, connecting fails.",
           ports.kernel.count() < kFewPorts ? set_local_ports({32768, 60999})
                                            : "sysctl -w net.ipv4.ip_local_reserved_ports=''   # or fewer of them than now"}});
  if (ports.kernel_tells) {
    table.push_back({"bootstrap_reserved",
                     given ? concat(port, " is one of the ports that the kernel gives to anybody")
                           : concat("the kernel gives ", port, " to nobody unasked"),
                     !given, kWarn, "Any outgoing connection may hold it when a server wants to listen there.",
                     concat("sysctl -w net.ipv4.ip_local_reserved_ports='", text_of(ports.reserved, '-', ","),
                            ports.reserved.empty() ? "" : ",", port, "'")});
  }
  return judge(table);
}

std::string address_text(const SubnetAddress& entry) {
  return concat(entry.address.host(), '/', entry.prefix);
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

Findings check_address(const NetworkInterface& interface, bool vendor_path) {
  const SubnetAddress* const address = interface.ipv4();
  const auto& all = interface.addresses;
  const auto other = std::ranges::find_if(all, [](const auto& entry) { return !entry.is_link_local(); });
  const bool v6 = other != all.end();
  return judge({{"address", "it is down or has no carrier", interface.up, kFail,
                 "A device that is down is missing, and its share of the rate with it.", "ip link set {} up"},
                {"address",
                 v6            ? concat("only IPv6: ", address_text(*other))
                 : all.empty() ? "it has no address"
                               : concat("only a link-local one: ", address_text(all.front())),
                 address != nullptr || (v6 && !vendor_path), kFail,
                 v6 ? "RxDM steers flows of GPUDirect-TCPX by their IPv4 addresses."
                    : "Another host cannot reach it, so connections over this device fail.",
                 "ip address add ADDRESS/PREFIX dev {}   # or let DHCP give it one"},
                {"address", address != nullptr ? address_text(*address)
                            : v6               ? concat(address_text(*other), ", no IPv4")
                                               : ""}},
               interface.name);
}

Findings check_subnet(const NetworkFacts& facts, const SharedNetwork& shared) {
  const NetworkInterface &one = facts.data[shared.one], &other = facts.data[shared.other];
  const std::string found = concat(address_text(*one.ipv4()), " and ", address_text(*other.ipv4()), " are in the same network");
  const size_t strayed = shared.one_is_used ? shared.other : shared.one;
  return judge(
      {{"subnet",
        concat(found, "; packets of ", facts.data[strayed].ipv4()->address.host(), " leave by another interface than ",
               facts.data[strayed].name),
        shared.one_is_used && shared.other_is_used, kWarn,
        "Replies of one leave through the other: both share one wire, and strict filters drop them.", own_route(facts, strayed)},
       {"subnet", concat(found, ", and each sends through its own interface")}},
      concat(one.name, ",", other.name));
}

Findings check_addresses(const NetworkFacts& facts) {
  const bool vendor_path = facts.expected.vendor_path, any = !facts.data.empty(), unnamed = facts.pattern.empty();
  Findings findings = judge(
      {{"addresses", "no interface is up and has an address", any || !unnamed, kFail,
        "Without a data interface there is no device, and no connection, not even within this machine.", kBringUpAnInterface},
       {"addresses", concat("no interface matches ", kIfname, "=", facts.pattern), any, kFail,
        "Without a data interface there is no device, and no connection.", concat("unset ", kIfname)}});
  if (!any) return findings;
  findings.clear();
  const std::string data = names_of(facts.data);
  for (const NetworkInterface& interface : facts.data) append(findings, check_address(interface, vendor_path));
  if (unnamed) {
    // Bridges of containers have the same address on every host. GPUDirect-TCPX leaves out those called docker alone.
    const std::string names = joined(facts.apart, ", ", [](const auto& it) { return describe_interface(it.name, it.kind); });
    append(findings, judge({{"bridges", concat(names, " would carry data besides ", data), facts.apart.empty() || !vendor_path,
                             kWarn, "A bridge for containers leads to no other host, and every host has the same address on it.",
                             concat("export ", kIfname, "='=", names_of(facts.data, ","), "'")},
                            {"bridges", facts.apart.empty() ? concat("none besides the data interfaces (", data, ")")
                                                            : concat(names, " carries no data: it leads to no other host")}}));
  }
  for (const SharedNetwork& shared : facts.shared) append(findings, check_subnet(facts, shared));
  std::vector<NetworkInterface> strict;
  std::ranges::copy_if(facts.data, std::back_inserter(strict), &NetworkInterface::strict_filter);
  const auto& route = facts.peer.usual;
  const bool peer_is_here = route && route->is_ok() && (*route)->local;
  const bool leaves = !peer_is_here && !std::ranges::all_of(facts.data, &NetworkInterface::loopback);
  const std::string found =
      peer_is_here ? concat(facts.peer.name, " is this machine itself") : concat("data goes over ", data, " only");
  append(findings,
         judge({{"rp_filter", concat(facts.data.size(), " data interface"), facts.data.size() >= 2, kNotApplicable,
                 "Strict reverse-path filters matter with several."},
                {"rp_filter", concat("strict on ", names_of(strict)), strict.empty(), kWarn,
                 "Packets that come in by another interface than the kernel would answer through are dropped in silence.",
                 "sysctl -w net.ipv4.conf.all.rp_filter=2"},
                {"rp_filter", "not strict on any data interface"},
                {"loopback", found, leaves || !vendor_path, kFail,
                 concat("GPUDirect-TCPX is expected here (", facts.expected.because,
                        "), and the NIC's path to GPU memory does not exist over loopback."),
                 peer_is_here ? "tcpx_doctor --peer ADDRESS   # of the other host's data interface"
                              : concat("export ", kIfname, "=eth1,eth2,eth3,eth4   # the data NICs that `ip -br address` shows")},
                {"loopback", leaves ? "data leaves this machine" : concat(found, ", which the software plugin can do")}}));
  return findings;
}

/// Of a data interface that does not lead to the peer.
Findings check_no_way(const NetworkFacts& facts, const PeerRoute& entry) {
  const SubnetAddress& own = *facts.data[entry.idx].ipv4();
  const std::string& name = facts.peer.name;
  const bool in_network = own.prefix < 32 && network_of(own) == network_of({*facts.peer.address, own.prefix});
  const std::string& interface = facts.data[entry.idx].name;
  return judge({{"peer", concat("the way to ", name, " is ", (*facts.peer.usual)->interface, ", not ", interface), in_network,
                 kNotApplicable, "Give --peer the address that the other host has in the network of {} to test this one."},
                {"peer",
                 concat(name, " is in the network of ", interface, ", but packets from ", own.address.host(),
                        entry.route.is_ok() ? concat(" leave by ", entry.route->interface) : " have no route"),
                 false, kWarn, "This device's traffic takes another device's wire, or is dropped by strict filters.",
                 own_route(facts, entry.idx)}},
               interface);
}

Findings check_way(const NetworkFacts& facts, const PeerWay& way) {
  const std::string from = way.source.host();
  const uint16_t port = facts.ports.bootstrap;
  return judge({{"peer", concat("no answer within 2 s to TCP from ", from, " to port ", port),
                 way.reached() || way.connected.code() != Code::kTimeout, kFail,
                 "A firewall on the way drops it, or the host is not there.",
                 concat("allow TCP ", text_of(facts.ports.all()), " from ", from, " to ", facts.peer.name,
                        " in the cloud's firewall, then on the peer: tcpx_doctor --only network")},
                {"peer", concat("not reached from ", from, ": ", way.connected.detail()), way.reached(), kFail,
                 "Connections over this device fail.",
                 concat("ip route get ", facts.peer.name, " from ", from, " && ip neigh show dev {}")},
                {"peer", concat("reached from ", from,
                                way.connected.is_ok() ? concat("; port ", port, " is listened on")
                                                      : concat("; nobody listens on port ", port, " now"))}},
               way.interface);
}

Findings check_path(const PeerWay& way, const std::string& peer) {
  const int mtu = way.mtu;
  const auto [answer, path_mtu] = way.path.value_or(PathProbe{});
  return judge(
      {{"path_mtu", concat("the path carries ", path_mtu, " bytes, the interface sends ", mtu), answer != PathAnswer::kTooLong,
        kWarn, "TCP falls back to shorter packets after losing some; header split wants the same size all the way.",
        concat("ip route add ", peer, " dev {} mtu ", path_mtu, "   # or the same MTU at both hosts and in the network")},
       {"path_mtu", concat("the kernel knows of no limit below ", path_mtu > 0 ? path_mtu : mtu, " bytes"),
        answer != PathAnswer::kSilent, kNotApplicable,
        "The peer answers no datagrams to closed ports, so nobody can tell whether full packets arrive."},
       {"path_mtu", concat("short packets arrive, those of ", mtu, " bytes vanish without a word"),
        answer != PathAnswer::kVanishes, kFail, "Connections are made and then hang with the first large message.",
        "ip link set {} mtu 1460   # and upwards, to the largest that arrives; the same at both hosts"},
       {"path_mtu", concat("packets of ", mtu, " bytes arrive whole")}},
      way.interface);
}

Findings check_peer(const NetworkFacts& facts) {
  const PeerFacts& peer = facts.peer;
  const bool routed = peer.usual && peer.usual->is_ok();
  const Route usual = routed ? **peer.usual : Route{};
  const bool over_data = std::ranges::count(facts.data, usual.interface, &NetworkInterface::name) > 0;
  Findings findings =
      judge({{"peer", "no other host was named", !peer.name.empty(), kNotApplicable, "Say which one with --peer IP."},
             {"peer", concat(peer.name, " is no IPv4 address"), peer.address && peer.usual, kFail,
              "Only an address tells which interface is meant.",
              "tcpx_doctor --peer 10.0.0.2   # an address that `ip -br address` shows there"},
             {"peer", concat("no route to ", peer.name, ": ", peer.usual ? peer.usual->status().detail() : ""), routed, kFail,
              "Nothing can be sent there.",
              concat("ip route add ", peer.name, " via GATEWAY   # or bring up the interface of its network")},
             {"peer", concat(peer.name, " is this machine itself"), !usual.local, kNotApplicable,
              "Its packets never leave it, so they tell nothing about the network."},
             {"peer",
              concat(peer.name, " is reached through ", usual.interface, " from ", usual.source,
                     over_data ? "" : concat(", which is no data interface (", names_of(facts.data), ")")),
              over_data, kWarn, "Connections can be arranged over it, but no data goes there.",
              "tcpx_doctor --peer ADDRESS   # of the other host in the network of a data interface"}});
  if (!routed || usual.local || !peer.address) return findings;
  for (const PeerWay& way : peer.ways) append(findings, check_way(facts, way));
  for (const PeerWay& way : peer.ways)
    if (way.path) append(findings, check_path(way, peer.name));
  for (const PeerRoute& entry : peer.routes) {
    const bool leads = entry.route.is_ok() && entry.route->interface == facts.data[entry.idx].name;
    if (!leads) append(findings, check_no_way(facts, entry));
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
  Findings findings = check_ports(facts);
  for (const auto check : {check_addresses, check_firewall, check_peer}) append(findings, check(facts));
  return findings;
}

}  // namespace tcpx::doctor
