// Which network interfaces become devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/socket_address.h"
#include "net/soft/config.h"
#include "tcpx/status.h"

namespace tcpx::soft {

struct Interface {
  std::string name;
  SocketAddress address;  ///< port 0
  std::string pci_path;   ///< realpath of /sys/class/net/<name>/device, "" when there is none
  int speed_mbps = 0;     ///< 10000 when the driver does not tell
};

/// One address of one interface, as getifaddrs(3) lists them.
struct InterfaceAddress {
  std::string name;
  SocketAddress address;
  bool up = false;
  bool loopback = false;
  bool link_local = false;
};

/// All of this machine's; none when the system does not tell.
std::vector<InterfaceAddress> list_addresses();

inline constexpr size_t kMaxInterfaces = 16;

/// Pure choice: one address per interface that is up and matches, sorted by name, at most kMaxInterfaces. `pattern` is the value
/// of NCCL_GPUDIRECTTCPX_SOCKET_IFNAME: prefixes separated by commas, leading '=' exact names, leading '^' exclusion, "^=" both.
/// An exact name that stands there n times ("=lo,lo") gives its address n times: a machine with one interface then has n devices.
/// Without a pattern: every interface but loopback, and loopback when nothing else is left. IPv4 goes before IPv6 with kAny; IPv6
/// link-local addresses mean nothing to another host and are left out.
std::vector<InterfaceAddress> choose_interfaces(const std::vector<InterfaceAddress>& all, const std::string& pattern,
                                                AddressFamily family);

/// The address of interface `name` for control sockets. kBadConfig, naming NCCL_GPUDIRECTTCPX_CTRL_DEV, when `all` has no such
/// interface that is up with an address of `family`.
Result<SocketAddress> choose_control_address(const std::vector<InterfaceAddress>& all, const std::string& name,
                                             AddressFamily family);

/// What NCCL_GPUDIRECTTCPX_CTRL_DEV says of this machine; nullopt when it is unset.
Result<std::optional<SocketAddress>> find_control_address(const Config& config);

/// What this machine has, filtered by `config`. When nothing is left, kBadConfig, or kNotFound where nothing was asked for,
/// naming what was asked for and what is there.
Result<std::vector<Interface>> find_interfaces(const Config& config);

}  // namespace tcpx::soft
