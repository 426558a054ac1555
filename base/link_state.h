// State of network interfaces: up and running, or not.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

enum class LinkState {
  kUp,       ///< administratively up, with carrier (IFF_UP and IFF_RUNNING of netdevice(7))
  kDown,     ///< administratively down, or without carrier
  kUnknown,  ///< no such interface, or the system does not report its state
};

/// Asks the kernel with one system call, cheap enough to repeat many times a second. Sees the interfaces of the network
/// namespace in which it was created. Any thread.
class LinkWatch {
 public:
  /// @return kExhausted or kSystem when no socket can be opened
  static Result<LinkWatch> create();
  /// Returns the watch that this process shares for the calling thread's network namespace, so that connections need no
  /// descriptor of their own for it.
  static Result<std::shared_ptr<const LinkWatch>> shared();

  LinkState state(const std::string& interface) const;

 private:
  explicit LinkWatch(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;  // used only for the ioctl
};

/// The interface whose address a bound or connected IP socket has; "" for other sockets, and when no interface has it.
std::string interface_of_socket(int fd);

}  // namespace tcpx
