#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/link_state.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/words.h"
#include "doctor/network.h"
#include "net/soft/interfaces.h"

namespace tcpx::doctor {
namespace {

constexpr Duration kAnswerLimit = std::chrono::seconds(2);
constexpr uint32_t kSamples = 64;

in_addr in_addr_of(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr;
}

SocketAddress address_of(in_addr address) {
  sockaddr_in whole{};
  whole.sin_family = AF_INET;
  whole.sin_addr = address;
  return *SocketAddress::from(reinterpret_cast<const sockaddr*>(&whole), sizeof whole);
}

BindFacts try_binds(const PortNeeds& ports) {
  BindFacts binds{.bootstrap_error = try_bind(ports.bootstrap), .tried = 0, .bound = 0};
  const uint32_t last = binds.bootstrap_error == 0 ? 0 : std::min<uint32_t>(65535, ports.bootstrap + 1200u);
  for (uint32_t port = std::max<uint32_t>(ports.bootstrap, 1023) + 1; port <= last && binds.free_port == 0; ++port) {
    if (try_bind(static_cast<uint16_t>(port)) == 0) binds.free_port = port;
  }
  // The usual 10001 ports are tried in steps of a prime, so that those handed out in steps are not all met or all missed.
  const PortRange range = ports.opened ? ports.opened->range : kUsualPorts;
  const uint32_t step = (range.count() + kSamples - 1) / kSamples;
  for (uint32_t port = range.first; port <= range.last; port += step, ++binds.tried) {
    const int error = try_bind(static_cast<uint16_t>(port));
    binds.bound += error == 0 ? 1 : 0;
    if (error != 0) binds.last_error = error;
  }
  return binds;
}

void ask_shared(NetworkFacts& facts) {
  for (SharedNetwork& shared : facts.shared) {
    const SubnetAddress &a = *facts.data[shared.one].ipv4(), &b = *facts.data[shared.other].ipv4();
    // Somebody else in that network; which one does not matter.
    uint32_t host = network_of(a) + 1;
    while (htonl(host) == in_addr_of(a.address).s_addr || htonl(host) == in_addr_of(b.address).s_addr) ++host;
    const auto leaves_by = [&](const SubnetAddress& entry, size_t idx) {
      const Result<Route> route = find_route(address_of({htonl(host)}), &entry.address);
      return route.is_ok() && route->interface == facts.data[idx].name;
    };
    shared.one_is_used = leaves_by(a, shared.one);
    shared.other_is_used = leaves_by(b, shared.other);
  }
}

void ask_peer(const Machine& machine, NetworkFacts& facts) {
  PeerFacts& peer = facts.peer;
  if (peer.name.empty()) return;
  const auto addresses = resolve(peer.name, facts.ports.bootstrap);
  if (!addresses.is_ok() || addresses->front().family() != AF_INET) return;
  peer.address = addresses->front();
  peer.usual = find_route(*peer.address, nullptr);
  if (!peer.usual->is_ok() || (*peer.usual)->local) return;
  const Route& usual = **peer.usual;
  const auto add_way = [&](const std::string& interface, const SocketAddress& source) {
    const auto mtu = number_of<int>(machine.files.text(concat("/sys/class/net/", interface, "/mtu")));
    peer.ways.push_back({.interface = interface, .source = source, .mtu = mtu.value_or(0)});
  };
  bool over_data = false;
  for (size_t i = 0; i < facts.data.size(); ++i) {
    const NetworkInterface& interface = facts.data[i];
    over_data = over_data || interface.name == usual.interface;
    const SubnetAddress* const own = interface.ipv4();
    if (own == nullptr || !interface.up) continue;
    const Result<Route>& route = peer.routes.emplace_back(PeerRoute{i, find_route(*peer.address, &own->address)}).route;
    if (route.is_ok() && route->interface == interface.name) add_way(interface.name, own->address);
  }
  if (!over_data) {
    if (const auto source = resolve(usual.source, 0); source.is_ok()) add_way(usual.interface, source->front());
  }
  try_connecting(*peer.address, peer.ways, kAnswerLimit);
  probe_paths(*peer.address, peer.ways, kAnswerLimit);
}

// The first port that traceroute(8) asks: nobody listens there, so a host that has got the datagram says so, with ICMP.
constexpr uint16_t kUnusedPort = 33434;
constexpr int kHeaders = 20 + 8;  // IPv4 and UDP
constexpr int kShort = 64;
constexpr int kShortestMtu = 576, kLongestMtu = 65535;  // loopback's is longer than any datagram
constexpr int kRounds = 3;

/// A datagram of `bytes`, headers included, at a time.
class Probe {
 public:
  Probe(const SocketAddress& target, const SocketAddress& source)
      : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const int probe = IP_PMTUDISC_PROBE;  // sends what is longer than the known path, too, and forbids to cut it
    const SocketAddress to = target.with_port(kUnusedPort);
    usable_ = fd_ && ::setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe) == 0 &&
              ::bind(fd_.get(), source.get(), source.length()) == 0 && ::connect(fd_.get(), to.get(), to.length()) == 0;
  }

  void send(int bytes) {
    const std::string payload(static_cast<size_t>(std::max(0, bytes - kHeaders)), '\0');
    if (usable_ && ::send(fd_.get(), payload.data(), payload.size(), 0) < 0) take(errno);
  }
  /// Takes what has come back.
  void look() { take(option(SOL_SOCKET, SO_ERROR)); }
  bool answered() const { return answered_; }
  bool too_long() const { return too_long_; }
  bool waits() const { return !answered_ && !too_long_; }
  int path_mtu() const { return option(IPPROTO_IP, IP_MTU); }
  pollfd entry() const { return {.fd = waits() ? fd_.get() : -1, .events = POLLIN, .revents = 0}; }

 private:
  int option(int level, int name) const {
    int value = 0;
    socklen_t length = sizeof value;
    return usable_ && ::getsockopt(fd_.get(), level, name, &value, &length) == 0 ? value : 0;
  }
  void take(int error) {
    answered_ = answered_ || error == ECONNREFUSED;
    too_long_ = too_long_ || error == EMSGSIZE;
  }
  UniqueFd fd_;
  bool usable_ = false, answered_ = false, too_long_ = false;
};

/// Full datagrams on a way, and short ones to tell a host that is silent.
struct PathTrial {
  PeerWay& way;
  Probe full, brief;

  PathProbe result() const {
    const int mtu = full.path_mtu();
    const bool too_long = full.too_long() || (mtu > 0 && mtu < way.mtu);
    return {too_long           ? PathAnswer::kTooLong
            : full.answered()  ? PathAnswer::kArrives
            : brief.answered() ? PathAnswer::kVanishes
                               : PathAnswer::kSilent,
            mtu};
  }
};

}  // namespace

void ask_network(const Machine& machine, NetworkFacts& facts) {
  facts.binds = try_binds(facts.ports);
  ask_shared(facts);
  facts.iptables = run_command("iptables-save", {}, kAnswerLimit);
  facts.nft = run_command("nft", {"list", "ruleset"}, kAnswerLimit);
  ask_peer(machine, facts);
}

std::vector<NetworkInterface> list_interfaces() {
  std::vector<NetworkInterface> all;
  const auto watch = LinkWatch::create();
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> list(::if_nameindex(), &::if_freenameindex);
  for (const struct if_nameindex* each = list.get(); each != nullptr && each->if_index != 0; ++each) {
    const std::string name = each->if_name;
    const bool up = watch.is_ok() && watch->state(name) == LinkState::kUp;
    all.push_back({.name = name, .up = up, .loopback = name == "lo", .addresses = {}, .kind = kind_of_interface(name)});
  }
  for (const soft::InterfaceAddress& entry : soft::list_addresses()) {
    const auto known = std::ranges::find(all, entry.name, &NetworkInterface::name);
    if (known != all.end()) known->addresses.push_back({entry.address, entry.prefix});
  }
  return all;
}

int try_bind(uint16_t port) {
  // As listeners do; a machine without IPv6 has IPv4 alone.
  for (const int family : {AF_INET6, AF_INET}) {
    const UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) continue;
    const int one = 1, zero = 0;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    const SocketAddress any = SocketAddress::any(family, port);
    if (::bind(fd.get(), any.get(), any.length()) == 0) return 0;
    if (errno != EADDRNOTAVAIL || family == AF_INET) return errno;
  }
  return EAFNOSUPPORT;
}

void try_connecting(const SocketAddress& target, std::span<PeerWay> ways, Duration limit) {
  const Deadline deadline = Deadline::after(limit);
  std::vector<Result<UniqueFd>> started;
  for (const PeerWay& way : ways) started.push_back(begin_connect(target, &way.source));
  for (size_t i = 0; i < ways.size(); ++i) {
    Status status = started[i].is_ok() ? wait_for(started[i]->get(), POLLOUT, deadline) : started[i].status();
    ways[i].connected = status.is_ok() ? end_connect(started[i]->get(), target) : status;
  }
}

void probe_paths(const SocketAddress& target, std::span<PeerWay> ways, Duration limit) {
  std::vector<PathTrial> trials;
  for (PeerWay& way : ways) {
    if (!way.reached() || way.mtu < kShortestMtu || way.mtu > kLongestMtu) continue;
    trials.push_back({way, Probe(target, way.source), Probe(target, way.source)});
  }
  for (int round = 0; round < kRounds; ++round) {
    const Deadline deadline = Deadline::after(limit / kRounds);
    for (PathTrial& trial : trials) {
      if (trial.full.waits()) trial.full.send(trial.way.mtu);
      if (trial.full.waits() && !trial.brief.answered()) trial.brief.send(kShort);
    }
    for (;;) {
      // Those that wait for a full datagram only; short ones are looked at on the way.
      std::vector<pollfd> waiting;
      for (PathTrial& trial : trials) {
        trial.full.look();
        trial.brief.look();
        if (trial.full.waits()) waiting.insert(waiting.end(), {trial.full.entry(), trial.brief.entry()});
      }
      if (waiting.empty() || deadline.expired()) break;
      if (::poll(waiting.data(), waiting.size(), deadline.poll_ms()) < 0 && errno != EINTR) break;
    }
  }
  for (PathTrial& trial : trials) trial.way.path = trial.result();
}

}  // namespace tcpx::doctor
