// SocketAddress: an IPv4 or IPv6 address with port, its text form, and resolution of host names.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tcpx/status.h"

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
  /// "10.0.0.1:80" or "[fe80::1]:80". An IPv4 peer of an IPv6 socket (::ffff:10.0.0.1) is written as the IPv4 address it is.
  std::string to_string() const;
  /// The address without the port.
  std::string host() const;
  /// 127.0.0.0/8 or ::1: leads to no other host.
  bool is_loopback() const;

 private:
  bool is_mapped_ipv4() const;

  union {
    sockaddr generic;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } storage_{};
};

/// Whether it is an address, not a name.
bool is_numeric(const std::string& host);

/// Host name, IPv4 or IPv6 address (brackets allowed) -> addresses to try in order. kNotFound with the resolver's text.
Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port);

/// The hosts of one peer that a text may name.
inline constexpr size_t kMostHosts = 8;
inline constexpr size_t kMaxHostBytes = 255;

/// "10.0.0.1,fd00::1" -> its hosts, addresses or names, in their order. kInvalidArgument: none, too many, an empty or too long one
Result<std::vector<std::string>> split_hosts(const std::string& hosts);
/// The text of these hosts.
std::string join_hosts(const std::vector<std::string>& hosts);

/// All addresses of hosts separated by commas, within a deadline: a resolver that does not answer is abandoned, on a thread that ends
/// with its answer. Of several hosts one that has no address is left out, and none is waited for longer than 3 s.
/// @param stop ends the wait early; may be null
/// @return as above for the first that fails, when all do; kTimeout at the deadline; kCancelled when stopped; kExhausted when too many
/// answers are outstanding
Result<std::vector<SocketAddress>> resolve(const std::string& hosts, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop);

}  // namespace tcpx
