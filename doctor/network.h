// Group "network": ports, addresses, packet filters, and the way to another host.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/interface_kind.h"
#include "base/port_range.h"
#include "base/route.h"
#include "base/socket_address.h"
#include "doctor/child_answer.h"
#include "doctor/finding.h"
#include "doctor/machine.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

using PortRanges = std::vector<PortRange>;

/// The range that job files for GPUDirect-TCPX open for data.
inline constexpr PortRange kUsualPorts{50000, 60000};

struct SubnetAddress {
  SocketAddress address;  ///< port 0
  int prefix = 0;         ///< leading bits that name the network

  bool is_link_local() const;
};

struct NetworkInterface {
  std::string name;
  bool up = false;  ///< and with a carrier
  bool loopback = false;
  std::vector<SubnetAddress> addresses;
  InterfaceKind kind = {};
  bool strict_filter = false;  ///< reverse-path filter

  /// Its first IPv4 address that is not link-local. nullptr: it has none.
  const SubnetAddress* ipv4() const;
};

/// TCP ports that transfers need.
struct PortNeeds {
  uint16_t bootstrap = 0;
  PortRange kernel;                      ///< a listener that names no port gets one of these
  bool kernel_tells = false;             ///< which, that is; else its own defaults are assumed
  PortRanges reserved;                   ///< of those it gives to nobody unasked
  std::optional<ListeningPorts> opened;  ///< our listeners keep to these; GPUDirect-TCPX's do not
  PortRanges data;                       ///< where listeners for data and its control may be, in order, apart from each other
  /// These and `bootstrap`, in the same way.
  PortRanges all() const;
  bool is_reserved(uint32_t port) const;
};

/// Answers to binding as a listener does.
struct BindFacts {
  int bootstrap_error = 0;        ///< errno; 0 when it can be bound
  uint32_t free_port = 0;         ///< another one that can be, where it cannot; 0: none near
  size_t tried = 64, bound = 64;  ///< of the range for data
  int last_error = 0;
};
struct ListeningPort {
  uint16_t port = 0;
  std::string user;
};

/// Two data interfaces in one network.
struct SharedNetwork {
  size_t one = 0, other = 0;                        ///< indices of NetworkFacts::data
  bool one_is_used = false, other_is_used = false;  ///< packets from its address leave by it
};

/// The fate of full-sized datagrams towards a host.
enum class PathAnswer {
  kArrives,   ///< the host has answered one
  kTooLong,   ///< a router says so, or the kernel knows
  kVanishes,  ///< short ones are answered, full ones are not
  kSilent,    ///< the host answers neither
};
struct PathProbe {
  PathAnswer answer = PathAnswer::kSilent;
  int path_mtu = 0;  ///< as the kernel knows it afterwards
};

/// The way to the peer from a data interface that is up and has an IPv4 address, as the kernel routes it.
struct PeerRoute {
  size_t idx = 0;  ///< of NetworkFacts::data
  Result<Route> route;
};
/// An interface that the kernel sends through to the peer.
struct PeerWay {
  std::string interface;
  SocketAddress source;
  int mtu = 0;  ///< of the interface, the size of a full datagram with its headers; 0: unknown
  Status connected = Status::ok();
  std::optional<PathProbe> path = {};  ///< nullopt: not tried

  /// By a connection, or by a refusal: then the host is there and nobody listens.
  bool reached() const;
};
struct PeerFacts {
  std::string name;                      ///< "" for none
  std::optional<SocketAddress> address;  ///< nullopt: no IPv4 address
  std::optional<Result<Route>> usual;    ///< from wherever the kernel likes
  std::vector<PeerRoute> routes;
  std::vector<PeerWay> ways;
};

struct NetworkFacts {
  Expectation expected;
  PortNeeds ports;
  std::string pattern;                 ///< by which the user has named the data interfaces; "" when not
  std::vector<NetworkInterface> apart;  ///< those that are up and reach this host alone, and that nobody has named
  std::vector<NetworkInterface> data;  ///< those that become devices of the plugin, or would if they were up
  std::vector<ListeningPort> listeners;
  BindFacts binds;
  std::vector<SharedNetwork> shared;
  ChildAnswer iptables, nft;  ///< of `iptables-save` and `nft list ruleset`
  PeerFacts peer;
};
/// Names of the interfaces that the plugins make devices of (net/soft/interfaces.h), each once. A named one counts although it is
/// down or has no address: that is to be found out.
std::vector<std::string> device_names(const std::vector<NetworkInterface>& all, const std::string& pattern);
/// From files and `all` interfaces alone. @param peer IPv4 address of another host; "" for none
NetworkFacts network_facts(const Machine& machine, const std::vector<NetworkInterface>& all, const std::string& peer);
/// Adds what the kernel, its packet filters and the peer answer. Changes nothing.
void ask_network(const Machine& machine, NetworkFacts& facts);

Findings check_network(const NetworkFacts& facts);
/// Its part about packet filters.
Findings check_firewall(const NetworkFacts& facts);

// Questions to the kernel and to other hosts. Limits are for the whole call.

std::vector<NetworkInterface> list_interfaces();
/// Binds TCP `port` of every address, as a listener does, and lets it go at once. @return errno, 0 when it can be bound
int try_bind(uint16_t port);
/// Connects to `target` from the source of each way at the same time, and notes how it went: kPeerGone with ECONNREFUSED when the
/// host is there and nobody listens, kTimeout.
void try_connecting(const SocketAddress& target, std::span<PeerWay> ways, Duration limit);
/// Sends full-sized datagrams, not to be cut on the way, to a port of `target` that nobody has: on each way that has been reached
/// over and whose size a datagram can have. IPv4.
void probe_paths(const SocketAddress& target, std::span<PeerWay> ways, Duration limit);

// Words for people.

/// "12345" or "32768-60999"; with `dash` between the ends.
std::string text_of(const PortRange& range, char dash = '-');
/// "12345, 32768-60999"
std::string text_of(const PortRanges& ranges, char dash = '-', std::string_view between = ", ");
/// The network of an IPv4 address, as a number.
uint32_t network_of(const SubnetAddress& entry);

}  // namespace tcpx::doctor
