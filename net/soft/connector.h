// The connecting end's handshake.
#pragma once

#include "base/clock.h"
#include "net/soft/comm.h"
#include "net/soft/wire.h"

namespace tcpx::soft {

/// Opens all sockets of a connection and says hello on each; returns when the listener has answered all of them. Needs nobody to
/// call accept over there. `source`, when its family is that of the listener, is the local address to bind.
/// @return kPeerGone when the listener is gone or refuses, kTimeout at the deadline, kProtocol when it is something else.
Result<ConnectedSockets> connect_to_listener(const HandleInfo& listener, const SocketAddress& source, Deadline deadline);

}  // namespace tcpx::soft
