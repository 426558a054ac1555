// What a network interface is: whether data that leaves by it can reach other hosts.
#pragma once

#include <string>
#include <string_view>

namespace tcpx {

enum class Reach {
  kNic,      ///< other hosts: hardware, what stands on hardware (bond, VLAN, a bridge with a NIC in it), a container's own end
  kOverlay,  ///< other hosts, but inside another interface's packets or through the air: tunnels, WireGuard, wireless
  kHere,     ///< this host and what runs on it: bridges of containers and guests, dummies
};

struct InterfaceKind {
  /// As `ip -d link` names it: "bridge", "wireguard", "veth"; "wireless"; "" for hardware, and where the kernel does not tell.
  std::string name;
  Reach reach = Reach::kNic;
};

/// Pure. @param joins_nic whether one of a bridge's ports leads to other hosts
Reach reach_of(std::string_view kind, bool joins_nic);

/// Asks the kernel over rtnetlink(7), in the network namespace of the calling thread. Takes a second at most for each question.
InterfaceKind kind_of_interface(const std::string& interface);

/// "docker0 (bridge)"; the name alone for hardware.
std::string describe_interface(const std::string& interface, const InterfaceKind& kind);

}  // namespace tcpx
