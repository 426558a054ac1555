// Handshake: from a bootstrap channel to a comm at each end. One end listens and ships the handle, accepts, and owns the
// receiving comm; the other gets the handle, connects, and owns the sending comm.
//
// While an end waits for the plugin it watches the bootstrap channel: a peer that dies or gives up ends the wait at once, not at
// the deadline, because plugins do not notice a peer that never came. The device's GPU must be current on the calling thread
// (27).
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "net/net_plugin.h"
#include "transfer/bootstrap_channel.h"
#include "transfer/comm.h"

namespace tcpx {

/// Limit of a wait, and its reasons to end early.
struct HandshakeWait {
  Deadline deadline;
  BootstrapChannel* peer = nullptr;         ///< watched when not null
  const std::atomic<bool>* stop = nullptr;  ///< may be null
};

/// Owns a listen comm and the handle that leads to it. The plugin must outlive it. One accept per listener: not every plugin can
/// do more (3).
class Listener {
 public:
  static Result<Listener> create(NetPlugin& plugin, int dev);
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  const Handle& handle() const { return handle_; }

  /// nullopt: nobody has come yet. `device_handle` as below.
  Result<std::optional<Comm>> try_accept(DeviceHandleStorage& device_handle);
  /// Waits for the end that connects with the handle. `device_handle` must live as long as the comm.
  /// @return kTimeout at the deadline, kCancelled when stopped, the bootstrap channel's error about the peer, or the plugin's
  /// error.
  Result<Comm> accept(DeviceHandleStorage& device_handle, const HandshakeWait& wait);
  /// The plugin's answer; closing twice is a no-op. Destruction closes too.
  Status close();

 private:
  Listener(NetPlugin& plugin, ListenComm comm, const Handle& handle) : plugin_(&plugin), comm_(comm), handle_(handle) {}

  NetPlugin* plugin_;
  ListenComm comm_;
  Handle handle_;
  bool open_ = true;
};

/// A comm, or why there is none.
using CommAnswer = Result<Comm>;

/// How long several comms that are made side by side are waited for.
struct HandshakePatience {
  Deadline for_first;        ///< while none is made
  Duration for_others = {};  ///< that the others then get at least, but no more than half of the time that is left
  bool all_or_none = false;  ///< all are waited for as for the first, and the first error is that of all; none is left open
};

/// Accepts at every listener, in any order that the other end comes to them, until all are made or the peer has sent a message.
/// @param device_handles one for each listener
/// @return an answer for each listener, in their order, kTimeout where nobody has come yet. An error that is none of a single way
/// (this process is out of something, the peer has gone or given up, the wait is over or was ended) is that of all.
Result<std::vector<CommAnswer>> accept_all(std::span<Listener> listeners,
                                           std::span<const std::unique_ptr<DeviceHandleStorage>> device_handles,
                                           const HandshakeWait& wait, bool all_or_none);

/// Connects to every handle from the device of the same place, in any order of their answers.
/// @return as accept_all; kTimeout, or what the plugin knows instead, where patience has ended
Result<std::vector<CommAnswer>> connect_all(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles,
                                            const HandshakeWait& wait, const HandshakePatience& patience);

/// Connects to the listener that `handle` leads to. `handle` itself stays as it is: the plugin writes into a copy (1, 2).
/// @return as Listener::accept.
Result<Comm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait);

}  // namespace tcpx
