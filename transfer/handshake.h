// Connecting and accepting with plugins that answer "not yet": polled until there is a comm, an error or the deadline.
#pragma once

#include <functional>

#include "base/clock.h"
#include "net/net_plugin.h"

namespace tcpx {

struct HandshakeWait {
  Deadline deadline;
  /// Looked at between polls (the peer's fate on the bootstrap channel, Ctrl-C); its error ends the wait. May be empty. Must not
  /// block.
  std::function<Status()> check = {};
};

/// The device's GPU must be current for the calling thread. `handle` stays as it is: the plugin writes into a copy (2).
/// @return kTimeout, what `check` said, or the plugin's error
Result<SendComm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait);

/// The device's GPU must be current for the calling thread. `device_handle` is filled on success; keep it until the comm is
/// closed.
/// @return like connect_comm
Result<RecvComm> accept_comm(NetPlugin& plugin, ListenComm listener, DeviceHandleStorage& device_handle,
                             const HandshakeWait& wait);

}  // namespace tcpx
