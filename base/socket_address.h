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

 private:
  bool is_mapped_ipv4() const;

  union {
    sockaddr generic;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } storage_{};
};

/// Host name, IPv4 or IPv6 address (brackets allowed) -> addresses to try in order. kNotFound with the resolver's text.
Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port);

/// The same within a deadline: a resolver that does not answer is abandoned, on a thread that ends with its answer.
/// @param stop ends the wait early; may be null
/// @return kTimeout at the deadline or when stopped; kExhausted when too many answers are outstanding
Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop);

}  // namespace tcpx
