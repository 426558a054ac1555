// What the parts of group "network" have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "programs/doctor/finding.h"
#include "programs/doctor/firewall_rules.h"
#include "programs/doctor/machine.h"
#include "programs/doctor/network_source.h"

namespace tcpx::doctor {

/// TCP ports that transfers need.
struct PortNeeds {
  uint16_t bootstrap = 0;
  PortRange kernel;                      ///< a listener that names no port gets one of these
  std::optional<ListeningPorts> opened;  ///< our listeners keep to these; GPUDirect-TCPX's do not
  PortRanges data;                       ///< where listeners for data and its control may be, in order, apart from each other
  /// These and `bootstrap`, in the same way.
  PortRanges all() const;
};

struct NetworkFacts {
  Expectation expected;
  PortNeeds ports;
  bool chosen = false;                 ///< the user has named the data interfaces
  std::vector<NetworkInterface> data;  ///< those that become devices of the plugin, or would if they were up
  std::string peer;                    ///< "" for none
};

/// The range that job files for GPUDirect-TCPX open for data.
inline constexpr PortRange kUsualPorts{50000, 60000};

NetworkFacts network_facts(const Machine& machine, const std::vector<NetworkInterface>& all, const std::string& peer);
/// "12345" or "32768-60999"; with `dash` between the ends.
std::string text_of(const PortRange& range, char dash = '-');
/// "12345, 32768-60999"
std::string text_of(const PortRanges& ranges, char dash = '-', std::string_view between = ", ");
/// "eth1, eth2"
std::string names_of(const std::vector<NetworkInterface>& interfaces, std::string_view between = ", ");
/// Of an IPv4 address, as a number.
uint32_t bits_of(const SocketAddress& address);
/// The network of an IPv4 address, as a number.
uint32_t network_of(const InterfaceAddress& entry);
/// Its first IPv4 address that is not link-local. nullptr: it has none.
const InterfaceAddress* ipv4_of(const NetworkInterface& interface);
/// Commands by which packets from the address of data interface `idx`, which `entry` is, leave by that interface.
std::string own_route(const NetworkFacts& facts, size_t idx, const InterfaceAddress& entry);

// The parts. Each appends.
void check_ports(const Machine& machine, const NetworkFacts& facts, NetworkSource& source, Findings& findings);
void check_addresses(const Machine& machine, const NetworkFacts& facts, NetworkSource& source, Findings& findings);
void check_firewall(const NetworkFacts& facts, NetworkSource& source, Findings& findings);
void check_peer(const Machine& machine, const NetworkFacts& facts, NetworkSource& source, Findings& findings);

}  // namespace tcpx::doctor
