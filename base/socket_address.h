// SocketAddress: an IPv4 or IPv6 address with port, its text form, and resolution of host names.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tcpx/status.h"

struct ifaddrs;

namespace tcpx {

class SocketAddress {
 public:
  SocketAddress() = default;
  /// Accepts AF_INET and AF_INET6 only; anything else is an error.
  static Result<SocketAddress> from(const sockaddr* address, socklen_t length);
  static SocketAddress any(int family, uint16_t port);
  static SocketAddress loopback(uint16_t port);

  int family() const { return storage_.generic.sa_family; }
  uint16_t port() const;
  SocketAddress with_port(uint16_t port) const;
  const sockaddr* get() const { return &storage_.generic; }
  socklen_t length() const;
  /// "10.0.0.1:80" or "[fe80::1]:80". An IPv4 peer of an IPv6 socket (::ffff:10.0.0.1) is written as an IPv4 address.
  std::string to_string() const;
  /// The address without the port.
  std::string host() const;
  /// True for 127.0.0.0/8 and ::1, which lead to no other host.
  bool is_loopback() const;

 private:
  bool is_mapped_ipv4() const;

  union {
    sockaddr generic;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } storage_{};
};

/// True for an IPv4 or IPv6 address, false for a name.
bool is_numeric(const std::string& host);

/// Calls `visit` for each IP address of an interface of this machine, in the calling thread's network namespace, until it returns true.
Status for_each_address(const std::function<bool(const ifaddrs& entry, const SocketAddress& address)>& visit);

/// Resolves a host name, or an IPv4 or IPv6 address (brackets allowed), to addresses to try in order.
/// @return kNotFound with the resolver's text
Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port);

/// Most hosts of one peer that a text may name, and most bytes of each.
inline constexpr size_t kMostHosts = 8;
inline constexpr size_t kMaxHostBytes = 255;

/// Splits a list such as "10.0.0.1,fd00::1" into its hosts, addresses or names, in their order.
/// @return kInvalidArgument: too many hosts, or one that is empty or too long
Result<std::vector<std::string>> split_hosts(const std::string& hosts);

/// Resolves hosts separated by commas to all their addresses, within a deadline. A resolver that does not answer is abandoned;
/// its thread ends when it answers. With several hosts, a host without an address is left out, and each may take at most 3 s.
/// @param stop ends the wait early; may be null
/// @return the error of the first host when all fail: kNotFound; kTimeout at the deadline; kCancelled when stopped; kExhausted
/// when too many answers are outstanding
Result<std::vector<SocketAddress>> resolve(const std::string& hosts, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop);

}  // namespace tcpx
