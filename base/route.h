// The kernel's routes.
#pragma once

#include <string>

#include "base/socket_address.h"
#include "tcpx/status.h"

namespace tcpx {

/// The kernel's way to an address.
struct Route {
  std::string interface;
  std::string source;  ///< address it would send from
  bool local = false;  ///< the address is one of this machine
};

/// The way that a packet to `target` would go, from `source` when given.
/// @param through of the routes by this interface alone, whichever the kernel prefers; "" for all. Other addresses of this machine
/// are no longer `local` then: they are looked for where the interface leads.
/// @return kPeerGone when there is no route
Result<Route> find_route(const SocketAddress& target, const SocketAddress* source, const std::string& through = {});

/// Pure: whether a socket must be bound to `nic` in order to leave by it, because it leads to the target but is not the kernel's choice.
/// @param usual the kernel's way to the target; `through`: its way by `nic`
bool must_bind(const std::string& nic, const Result<Route>& usual, const Result<Route>& through);

}  // namespace tcpx
