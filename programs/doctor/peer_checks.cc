// The way to another host, by data interface.
//
// Interfaces of a machine may lie in networks that do not know each other (on A3 each NIC has its own): an address of the peer is
// then reached from one interface only, and the others have nothing to say about it. The kernel's routes tell.
#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/text.h"
#include "programs/doctor/network_facts.h"

namespace tcpx::doctor {
namespace {

constexpr Duration kLimit = std::chrono::seconds(2);

/// An interface that the kernel sends through, with the address it sends from.
struct Way {
  std::string interface;
  SocketAddress source;
};

bool in_network(const InterfaceAddress& entry, const SocketAddress& other) {
  return entry.prefix < 32 && network_of(entry) == network_of({other, entry.prefix});
}

Finding judge(const Way& way, const Status& status, const NetworkFacts& facts) {
  const std::string check = concat("peer[", way.interface, "]");
  const std::string from = way.source.host();
  if (status.is_ok()) return ok(check, concat("reached from ", from, "; port ", facts.ports.bootstrap, " is listened on"));
  const bool native = status.domain() == Domain::kErrno;
  if (native && (status.native() == ECONNREFUSED || status.native() == ECONNRESET)) {
    return ok(check, concat("reached from ", from, "; nobody listens on port ", facts.ports.bootstrap, " now"));
  }
  if (status.code() == Code::kTimeout) {
    return fail(check, concat("no answer within 2 s to TCP from ", from, " to port ", facts.ports.bootstrap),
                "A firewall on the way drops it, or the host is not there.",
                concat("allow TCP ", text_of(facts.ports.all()), " from ", from, " to ", facts.peer,
                       " in the cloud's firewall, then on the peer: tcpx_doctor --only network"));
  }
  return fail(check, concat("not reached from ", from, ": ", status.detail()), "Connections over this device fail.",
              concat("ip route get ", facts.peer, " from ", from, " && ip neigh show dev ", way.interface));
}

/// Which ways there are; interfaces without one say so.
std::vector<Way> ways_to(const SocketAddress& peer, const Route& usual, const NetworkFacts& facts, NetworkSource& source,
                         Findings& findings) {
  std::vector<Way> ways;
  for (size_t i = 0; i < facts.data.size(); ++i) {
    const NetworkInterface& interface = facts.data[i];
    const InterfaceAddress* const address = ipv4_of(interface);
    if (address == nullptr || !interface.up) continue;  // said already
    const std::string check = concat("peer[", interface.name, "]");
    const Result<Route> route = source.route(peer, &address->address);
    if (route.is_ok() && route->interface == interface.name) {
      ways.push_back({interface.name, address->address});
    } else if (in_network(*address, peer)) {
      findings.push_back(warn(
          check,
          concat(facts.peer, " is in the network of ", interface.name, ", but packets from ", address->address.host(),
                 route.is_ok() ? concat(" leave by ", route->interface) : " have no route"),
          "This device's traffic takes another device's wire, or is dropped by strict filters.", own_route(facts, i, *address)));
    } else {
      findings.push_back(not_applicable(
          check, concat("the way to ", facts.peer, " is ", usual.interface, ", not ", interface.name),
          concat("Give --peer the address that the other host has in the network of ", interface.name, " to test this one.")));
    }
  }
  return ways;
}

void judge_path(const Way& way, const PathProbe& probe, int mtu, const std::string& peer, Findings& findings) {
  const std::string check = concat("path_mtu[", way.interface, "]");
  switch (probe.answer) {
    case PathAnswer::kArrives:
      findings.push_back(ok(check, concat("packets of ", mtu, " bytes arrive whole")));
      return;
    case PathAnswer::kTooLong:
      findings.push_back(
          warn(check, concat("the path carries ", probe.path_mtu, " bytes, the interface sends ", mtu),
               "TCP falls back to shorter packets after losing some; header split wants the same size all the way.",
               concat("ip route add ", peer, " dev ", way.interface, " mtu ", probe.path_mtu,
                      "   # or the same MTU at both hosts and in the network")));
      return;
    case PathAnswer::kVanishes:
      findings.push_back(fail(check, concat("short packets arrive, those of ", mtu, " bytes vanish without a word"),
                              "Connections are made and then hang with the first large message.",
                              concat("ip link set ", way.interface,
                                     " mtu 1460   # and upwards, to the largest that arrives; the same at both hosts")));
      return;
    case PathAnswer::kSilent:
      findings.push_back(not_applicable(
          check, concat("the kernel knows of no limit below ", probe.path_mtu > 0 ? probe.path_mtu : mtu, " bytes"),
          "The peer answers no datagrams to closed ports, so nobody can tell whether full packets arrive."));
      return;
  }
}

void check_paths(const Machine& machine, const SocketAddress& peer, const std::vector<Way>& ways, const NetworkFacts& facts,
                 NetworkSource& source, Findings& findings) {
  std::vector<PathQuestion> questions;
  std::vector<Way> asked;
  for (const Way& way : ways) {
    const std::string text = machine.files.read(concat("/sys/class/net/", way.interface, "/mtu")).value_or("");
    int mtu = 0;
    std::from_chars(text.data(), text.data() + text.size(), mtu);
    if (mtu < 576 || mtu > 65535) continue;  // loopback's is longer than any datagram
    questions.push_back({way.source, mtu});
    asked.push_back(way);
  }
  if (asked.empty()) return;
  const std::vector<PathProbe> probes = source.probe_paths(peer, questions, kLimit);
  for (size_t i = 0; i < asked.size(); ++i) judge_path(asked[i], probes.at(i), questions[i].mtu, facts.peer, findings);
}

}  // namespace

void check_peer(const Machine& machine, const NetworkFacts& facts, NetworkSource& source, Findings& findings) {
  if (facts.peer.empty()) {
    findings.push_back(not_applicable("peer", "no other host was named", "Say which one with --peer IP."));
    return;
  }
  const auto addresses = resolve(facts.peer, facts.ports.bootstrap);
  if (!addresses.is_ok() || addresses->front().family() != AF_INET) {
    findings.push_back(fail("peer", concat(facts.peer, " is no IPv4 address"), "Only an address tells which interface is meant.",
                            "tcpx_doctor --peer 10.0.0.2   # an address that `ip -br address` shows there"));
    return;
  }
  const SocketAddress& peer = addresses->front();
  const Result<Route> usual = source.route(peer, nullptr);
  if (!usual.is_ok()) {
    findings.push_back(fail("peer", concat("no route to ", facts.peer, ": ", usual.status().detail()),
                            "Nothing can be sent there.",
                            concat("ip route add ", facts.peer, " via GATEWAY   # or bring up the interface of its network")));
    return;
  }
  const bool over_data = std::any_of(facts.data.begin(), facts.data.end(),
                                     [&](const NetworkInterface& entry) { return entry.name == usual->interface; });
  const std::string found = concat(facts.peer, " is reached through ", usual->interface, " from ", usual->source);
  if (usual->local) {
    findings.push_back(not_applicable("peer", concat(facts.peer, " is this machine itself"),
                                      "Its packets never leave it, so they tell nothing about the network."));
    return;
  }
  if (over_data) {
    findings.push_back(ok("peer", found));
  } else {
    findings.push_back(warn("peer", concat(found, ", which is no data interface (", names_of(facts.data), ")"),
                            "Connections can be arranged over it, but no data goes there.",
                            "tcpx_doctor --peer ADDRESS   # of the other host in the network of a data interface"));
  }
  Findings others;
  std::vector<Way> ways = ways_to(peer, *usual, facts, source, others);
  if (!over_data && !usual->source.empty()) {
    if (const auto from = resolve(usual->source, 0); from.is_ok()) ways.push_back({usual->interface, from->front()});
  }
  std::vector<SocketAddress> sources;
  for (const Way& way : ways) sources.push_back(way.source);
  const std::vector<Status> statuses = source.connect_from(peer, sources, kLimit);
  std::vector<Way> reached;
  for (size_t i = 0; i < ways.size(); ++i) {
    findings.push_back(judge(ways[i], statuses.at(i), facts));
    if (findings.back().verdict == Verdict::kOk) reached.push_back(ways[i]);
  }
  check_paths(machine, peer, reached, facts, source, findings);
  findings.insert(findings.end(), others.begin(), others.end());
}

}  // namespace tcpx::doctor
