// Is a network interface up and running?
#pragma once

#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

enum class LinkState {
  kUp,       ///< switched on, and its link carries (IFF_UP and IFF_RUNNING of netdevice(7))
  kDown,     ///< switched off, or without carrier
  kUnknown,  ///< there is no such interface, or the system does not tell
};

/// Asks the kernel with one system call, cheap enough for many times a second. Sees the interfaces of the network namespace in
/// which it was made. Any thread.
class LinkWatch {
 public:
  /// @return kSystem when no socket can be had
  static Result<LinkWatch> create();

  LinkState state(const std::string& interface) const;

 private:
  explicit LinkWatch(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;  // of no use but to ask through
};

/// The interface whose address a bound or connected IP socket has; "" for other sockets, and when no interface has it.
std::string interface_of_socket(int fd);

/// An address of the interface, without port: IPv4 if it has one, else IPv6 that is not link-local; "" when it has none.
std::string address_of_interface(const std::string& interface);

}  // namespace tcpx
