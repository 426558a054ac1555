// The way to another host, by data interface.
//
// Interfaces of a machine may lie in networks that do not know each other (on A3 each NIC has its own): an address of the peer is
// then reached from one interface only, and the others have nothing to say about it. The kernel's routes tell.
#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "programs/doctor/network.h"

namespace tcpx::doctor {
namespace {

bool in_network(const InterfaceAddress& entry, const SocketAddress& other) {
  return entry.prefix < 32 && network_of(entry) == network_of({other, entry.prefix});
}

/// Of a data interface that does not lead to the peer.
Finding check_no_way(const NetworkFacts& facts, const PeerRoute& entry) {
  const NetworkInterface& interface = facts.data[entry.idx];
  const InterfaceAddress& own = *interface.ipv4();
  const std::string check = concat("peer[", interface.name, "]");
  const std::string& name = facts.peer.name;
  if (!in_network(own, *facts.peer.address)) {
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
  const std::string from = way.from.source.host();
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
  const int mtu = way.from.mtu, path_mtu = way.path->path_mtu;
  switch (way.path->answer) {
    case PathAnswer::kArrives:
      break;
    case PathAnswer::kTooLong:
      return warn(check, concat("the path carries ", path_mtu, " bytes, the interface sends ", mtu),
                  "TCP falls back to shorter packets after losing some; header split wants the same size all the way.",
                  concat("ip route add ", peer, " dev ", way.interface, " mtu ", path_mtu,
                         "   # or the same MTU at both hosts and in the network"));
    case PathAnswer::kVanishes:
      return fail(check, concat("short packets arrive, those of ", mtu, " bytes vanish without a word"),
                  "Connections are made and then hang with the first large message.",
                  concat("ip link set ", way.interface,
                         " mtu 1460   # and upwards, to the largest that arrives; the same at both hosts"));
    case PathAnswer::kSilent:
      return not_applicable(check, concat("the kernel knows of no limit below ", path_mtu > 0 ? path_mtu : mtu, " bytes"),
                            "The peer answers no datagrams to closed ports, so nobody can tell whether full packets arrive.");
  }
  return ok(check, concat("packets of ", mtu, " bytes arrive whole"));
}

}  // namespace

bool PeerWay::reached() const {
  const bool refused =
      connected.domain() == Domain::kErrno && (connected.native() == ECONNREFUSED || connected.native() == ECONNRESET);
  return connected.is_ok() || refused;
}

void check_peer(const NetworkFacts& facts, Findings& findings) {
  const PeerFacts& peer = facts.peer;
  if (peer.name.empty()) {
    findings.push_back(not_applicable("peer", "no other host was named", "Say which one with --peer IP."));
    return;
  }
  if (!peer.address || !peer.usual) {
    findings.push_back(fail("peer", concat(peer.name, " is no IPv4 address"), "Only an address tells which interface is meant.",
                            "tcpx_doctor --peer 10.0.0.2   # an address that `ip -br address` shows there"));
    return;
  }
  if (!peer.usual->is_ok()) {
    findings.push_back(fail("peer", concat("no route to ", peer.name, ": ", peer.usual->status().detail()),
                            "Nothing can be sent there.",
                            concat("ip route add ", peer.name, " via GATEWAY   # or bring up the interface of its network")));
    return;
  }
  const Route& usual = **peer.usual;
  if (usual.local) {
    findings.push_back(not_applicable("peer", concat(peer.name, " is this machine itself"),
                                      "Its packets never leave it, so they tell nothing about the network."));
    return;
  }
  const bool over_data =
      std::any_of(facts.data.begin(), facts.data.end(), [&](const auto& entry) { return entry.name == usual.interface; });
  findings.push_back(judged(over_data, Verdict::kWarn, "peer",
                            concat(peer.name, " is reached through ", usual.interface, " from ", usual.source,
                                   over_data ? "" : concat(", which is no data interface (", names_of(facts.data), ")")),
                            "Connections can be arranged over it, but no data goes there.",
                            "tcpx_doctor --peer ADDRESS   # of the other host in the network of a data interface"));
  for (const PeerWay& way : peer.ways) findings.push_back(check_way(facts, way));
  for (const PeerWay& way : peer.ways) {
    if (way.path) findings.push_back(check_path(way, peer.name));
  }
  for (const PeerRoute& entry : peer.routes) {
    const bool leads = entry.route.is_ok() && entry.route->interface == facts.data[entry.idx].name;
    if (!leads) findings.push_back(check_no_way(facts, entry));
  }
}

}  // namespace tcpx::doctor
