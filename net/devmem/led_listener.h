// The proof that packets may be led to a queue of another process: a socket of it that listens for them.
#pragma once

#include <string>

#include "base/socket_address.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

/// Where a listening TCP socket that another process has passed takes connections, in this network namespace.
/// @param listener of any kind: only the kernel is asked, not the file behind it
/// @param interface whose packets are to be led
/// @return kInvalidArgument: it is no such socket, or listens to packets of other interfaces as well as to those of this one
Result<SocketAddress> address_of_listener(int listener, const std::string& interface);

}  // namespace tcpx::devmem
