// Selection of the network interfaces that become devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/interface_kind.h"
#include "base/socket_address.h"
#include "net/soft/config.h"
#include "tcpx/status.h"

namespace tcpx::soft {

/// One address of one interface, as getifaddrs(3) lists them.
struct InterfaceAddress {
  std::string name;                                ///< without a label: "eth0:1" is another address of eth0
  SocketAddress address;                           ///< port 0
  std::optional<SocketAddress> other_family = {};  ///< of a device: where else it is reached
  bool up = false;                                 ///< and with a carrier
  bool loopback = false;                           ///< 127.0.0.0/8, ::1: other addresses of lo are this host's in its network
  bool link_local = false;
  InterfaceKind kind = {};
  std::string pci_path = {};  ///< realpath of /sys/class/net/<name>/device, "" when there is none
  int speed_mbps = 0;         ///< 10000 when the driver does not report it
  int prefix = 0;             ///< leading bits that name the network
};

/// All addresses of this machine; none when the system does not list them.
std::vector<InterfaceAddress> list_addresses();

inline constexpr size_t kMaxInterfaces = 16;

/// Pure choice: the interfaces that carry data, one address of each and one of the other family, at most kMaxInterfaces. All that ask what a data NIC is ask
/// here. Only those that are up count.
///
/// `pattern` is the value of NCCL_GPUDIRECTTCPX_SOCKET_IFNAME: prefixes separated by commas, leading '=' exact names, leading '^'
/// exclusion, "^=" both. Interfaces that it names are taken, whatever they are. An exact name given n times ("=lo,lo") yields its
/// address n times: a machine with one interface then has n devices.
///
/// Without names: all that reach other hosts (Reach::kNic). Only where there is none: an address of lo that is not loopback, as
/// routed hosts have; else tunnels and wireless; else loopback. Never those of this host alone, and never those whose only
/// addresses are link-local: a service processor has the same at every host.
///
/// In order: hardware first, then by speed, then by name. kAny prefers IPv4 to IPv6; IPv6 link-local addresses mean nothing to
/// another host and are skipped.
std::vector<InterfaceAddress> choose_interfaces(const std::vector<InterfaceAddress>& all, const std::string& pattern,
                                                AddressFamily family);

/// Pure: the addresses at which other hosts may reach the devices with these interfaces, in their order and at most `most`: of each its
/// first address of each family, then what else it has, each with what choose_interfaces takes of that interface alone. One loopback
/// address where there is nothing else.
std::vector<SocketAddress> choose_addresses(const std::vector<InterfaceAddress>& all, const std::vector<std::string>& interfaces,
                                            const std::string& pattern, AddressFamily family, size_t most);

/// Pure: "eth0 10.0.0.1", an address by which other hosts would reach this one, of an interface that choose_interfaces leaves alone;
/// "": none, or the pattern names what to take.
std::string find_unused(const std::vector<InterfaceAddress>& all, const std::string& pattern);

/// Whether the pattern names the interface, or does not exclude it; an empty one excludes none.
bool matches_name(const std::string& pattern, const std::string& name);
/// Whether it names it.
bool names(const std::string& pattern, const std::string& name);
bool is_of(AddressFamily family, const SocketAddress& address);

/// Its address, and that of the other family when there is one.
std::vector<SocketAddress> addresses_of(const InterfaceAddress& device);

/// The addresses of interface `name` for control sockets. kBadConfig, naming NCCL_GPUDIRECTTCPX_CTRL_DEV, when `all` has no such
/// interface that is up with an address of `family`.
Result<std::vector<SocketAddress>> choose_control_addresses(const std::vector<InterfaceAddress>& all, const std::string& name,
                                                            AddressFamily family);

/// The addresses selected by NCCL_GPUDIRECTTCPX_CTRL_DEV on this machine; none when it is unset.
Result<std::vector<SocketAddress>> find_control_addresses(const Config& config);

/// The interfaces of this machine, filtered by `config`. Logs a warning for each name of the filter that no interface has. When
/// none is left, kBadConfig, or kNotFound without a filter, naming the filter and the interfaces there are.
Result<std::vector<InterfaceAddress>> find_interfaces(const Config& config);

}  // namespace tcpx::soft
