// The kernel's routes.
#pragma once

#include <string>

#include "base/socket_address.h"
#include "tcpx/status.h"

namespace tcpx {

/// The kernel's route to an address.
struct Route {
  std::string interface;
  std::string source;  ///< source address that the kernel would choose
  bool local = false;  ///< the target is an address of this machine
};

/// Finds the route of a packet to `target`, from `source` when given.
/// @param through considers only routes over this interface; "" for all. Other addresses of this machine are then not `local`:
/// they are looked for where the interface leads.
/// @return kPeerGone when there is no route
Result<Route> find_route(const SocketAddress& target, const SocketAddress* source, const std::string& through = {});

/// True when a socket must be bound to `nic` for its packets to leave there: the NIC leads to the target, but the kernel would
/// choose another one. Pure.
/// @param usual the kernel's route to the target. @param through its route over `nic`
bool must_bind(const std::string& nic, const Result<Route>& usual, const Result<Route>& through);

}  // namespace tcpx
