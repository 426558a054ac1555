// Kind of a network interface, and whether data that leaves by it can reach other hosts.
#pragma once

#include <string>
#include <string_view>

namespace tcpx {

/// The hosts that can be reached over an interface.
enum class Reach {
  kNic,      ///< other hosts: hardware, an interface on top of it (bond, VLAN, a bridge with a NIC), a container's end of a veth
  kOverlay,  ///< other hosts, but inside another interface's packets or by radio: tunnels, WireGuard, wireless
  kHere,     ///< only this host and what runs on it: bridges of containers and guests, dummies
};

struct InterfaceKind {
  /// The kind as `ip -d link` names it ("bridge", "wireguard", "veth"), or "wireless"; "" for hardware, and when it is unknown.
  std::string name;
  Reach reach = Reach::kNic;
};

/// The reach of an interface of this kind. Pure. @param joins_nic a port of the bridge leads to other hosts
Reach reach_of(std::string_view kind, bool joins_nic);

/// Asks the kernel over rtnetlink(7), in the network namespace of the calling thread. Each request takes at most a second.
InterfaceKind kind_of_interface(const std::string& interface);

/// "docker0 (bridge)"; the name alone for hardware.
std::string describe_interface(const std::string& interface, const InterfaceKind& kind);

}  // namespace tcpx
