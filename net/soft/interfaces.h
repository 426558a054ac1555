// Selection of the network interfaces that become devices.
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
  int speed_mbps = 0;     ///< 10000 when the driver does not report it
};

/// One address of one interface, as getifaddrs(3) lists them.
struct InterfaceAddress {
  std::string name;
  SocketAddress address;
  bool up = false;
  bool loopback = false;
  bool link_local = false;
};

/// All addresses of this machine; none when the system does not list them.
std::vector<InterfaceAddress> list_addresses();

inline constexpr size_t kMaxInterfaces = 16;

/// Pure choice: one address per interface that is up and matches, sorted by name, at most kMaxInterfaces. `pattern` is the value
/// of NCCL_GPUDIRECTTCPX_SOCKET_IFNAME: prefixes separated by commas, leading '=' exact names, leading '^' exclusion, "^=" both.
/// An exact name given n times ("=lo,lo") yields its address n times: a machine with one interface then has n devices.
/// Without a pattern: every interface but loopback, and loopback when nothing else is left. kAny prefers IPv4 to IPv6; IPv6
/// link-local addresses mean nothing to another host and are skipped.
std::vector<InterfaceAddress> choose_interfaces(const std::vector<InterfaceAddress>& all, const std::string& pattern,
                                                AddressFamily family);

/// The address of interface `name` for control sockets. kBadConfig, naming NCCL_GPUDIRECTTCPX_CTRL_DEV, when `all` has no such
/// interface that is up with an address of `family`.
Result<SocketAddress> choose_control_address(const std::vector<InterfaceAddress>& all, const std::string& name,
                                             AddressFamily family);

/// Address selected by NCCL_GPUDIRECTTCPX_CTRL_DEV on this machine; nullopt when it is unset.
Result<std::optional<SocketAddress>> find_control_address(const Config& config);

/// The interfaces of this machine, filtered by `config`. When none is left, kBadConfig, or kNotFound without a filter, naming
/// the filter and the interfaces there are.
Result<std::vector<Interface>> find_interfaces(const Config& config);

}  // namespace tcpx::soft
