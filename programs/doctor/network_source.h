// What the checks of the network ask of the kernel and of other hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket_address.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

struct InterfaceAddress {
  SocketAddress address;  ///< port 0
  int prefix = 0;         ///< leading bits that name the network
};

struct NetworkInterface {
  std::string name;
  bool up = false;  ///< and with a carrier
  bool loopback = false;
  std::vector<InterfaceAddress> addresses;
};

/// How the kernel would send to an address.
struct Route {
  std::string interface;
  std::string source;  ///< address it would send from
  bool local = false;  ///< the address is one of this machine
};

struct CommandAnswer {
  bool installed = false;
  bool timed_out = false;
  int exit_code = 0;  ///< 128 plus the signal when one ended it
  std::string text;   ///< its standard output and error
};

/// What became of full-sized datagrams towards a host.
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
struct PathQuestion {
  SocketAddress source;
  int mtu = 0;  ///< of its interface: the size of a full datagram with its headers
};

/// All limits are for the whole call. Nothing is changed on the machine.
class NetworkSource {
 public:
  virtual ~NetworkSource() = default;

  virtual std::vector<NetworkInterface> interfaces() = 0;
  /// Binds TCP `port` of every address, as a listener does, and lets it go at once. @return errno, 0 when it can be bound
  virtual int try_bind(uint16_t port) = 0;
  /// Runs a program of the system's own directories with these arguments, without a shell and without input.
  virtual CommandAnswer run(const std::string& program, const std::vector<std::string>& arguments, Duration limit) = 0;
  /// Where a packet to `target` would go, from `source` when given. IPv4. @return kPeerGone when there is no route
  virtual Result<Route> route(const SocketAddress& target, const SocketAddress* source) = 0;
  /// Connects to `target` from each of `sources` at the same time. @return for each how it went: kPeerGone with ECONNREFUSED when
  /// the host is there and nobody listens, kTimeout
  virtual std::vector<Status> connect_from(const SocketAddress& target, std::span<const SocketAddress> sources,
                                           Duration limit) = 0;
  /// Sends full-sized datagrams, not to be cut on the way, to a port of `target` that nobody has, from each source. IPv4.
  virtual std::vector<PathProbe> probe_paths(const SocketAddress& target, std::span<const PathQuestion> questions,
                                             Duration limit) = 0;
};

/// This machine's.
std::unique_ptr<NetworkSource> make_network_source();

}  // namespace tcpx::doctor
