// The connecting end's handshake.
#pragma once

#include <optional>

#include "base/clock.h"
#include "net/soft/comm.h"
#include "net/soft/wire.h"

namespace tcpx::soft {

/// Opens all sockets of a connection and says hello on each; returns when the listener has answered all of them. Needs nobody to
/// call accept over there. `source` is the local address to bind, and `control_source` that of the control socket when the
/// listener has a control address of its own; one of another family than the listener's is left aside.
/// @return kPeerGone when the listener is gone or refuses, kTimeout at the deadline, kProtocol when it is something else.
Result<ConnectedSockets> connect_to_listener(const HandleInfo& listener, const SocketAddress& source, Deadline deadline,
                                             const std::optional<SocketAddress>& control_source = std::nullopt);

}  // namespace tcpx::soft
