// Handshake: makes a comm at each end of a bootstrap channel. One end listens, sends the handle to its peer, accepts, and owns
// the receiving comm. The other end receives the handle, connects, and owns the sending comm.
//
// An end that waits for the plugin watches the bootstrap channel meanwhile. A peer that dies or gives up thus ends the wait at
// once and not at the deadline; plugins do not notice a peer that never came. The device's GPU must be current on the calling
// thread (27).
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "net/net_plugin.h"
#include "wire/bootstrap_channel.h"
#include "transfer/comm.h"

namespace tcpx {

/// The deadline of a wait, and what ends it early.
struct HandshakeWait {
  Deadline deadline;
  BootstrapChannel* peer = nullptr;         ///< watched when not null
  const std::atomic<bool>* stop = nullptr;  ///< may be null
};

/// Owns a listen comm and its handle. The plugin must outlive it. A listener accepts once, because not every plugin can do more
/// (3).
class Listener {
 public:
  static Result<Listener> create(NetPlugin& plugin, int dev);
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  const Handle& handle() const { return handle_; }

  /// Accepts without waiting. @return nullopt: no peer has connected yet. `device_handle` must live as long as the comm
  Result<std::optional<Comm>> try_accept(DeviceHandleStorage& device_handle);
  /// Waits for the end that connects with the handle. `device_handle` must live as long as the comm.
  /// @return kTimeout at the deadline; kCancelled when stopped; the bootstrap channel's error about the peer; the plugin's error
  Result<Comm> accept(DeviceHandleStorage& device_handle, const HandshakeWait& wait);
  /// Closes and returns the plugin's answer. Closing twice is a no-op. Destruction closes, too.
  Status close();

 private:
  Listener(NetPlugin& plugin, ListenComm comm, const Handle& handle) : plugin_(&plugin), comm_(comm), handle_(handle) {}

  NetPlugin* plugin_;
  ListenComm comm_;
  Handle handle_;
  bool open_ = true;
};

/// A comm, or the reason why there is none.
using CommAnswer = Result<Comm>;

/// Limits of the waits for several comms that are made side by side.
struct HandshakePatience {
  Deadline for_first;        ///< applies until the first comm is made
  Duration for_others = {};  ///< least time that the others then have, but no more than half of the time that is left
  bool all_or_none = false;  ///< every comm may take as long as the first; the first error fails all, and no comm is left open
};

/// Comms that one end makes side by side. A comm that is not ready holds up none of the others, because the two ends may work on
/// them in different orders. An error that concerns more than one comm (this process is out of a resource) fails all of them.
/// With `all_or_none` every error does.
class CommsInTheMaking {
 public:
  bool any_made() const { return any_made_; }
  bool all_answered() const { return answered_ == answers_.size(); }
  /// The answer for comm `i`. nullopt: not yet
  std::optional<CommAnswer>& answer(size_t i) { return answers_[i]; }

 protected:
  CommsInTheMaking(size_t count, bool all_or_none) : answers_(count), all_or_none_(all_or_none) {}
  template <class Try>
  Status ask(Try try_one);

  std::vector<std::unique_ptr<DeviceHandleStorage>> device_handles_;  // of accepted comms; they outlive the comms
  std::vector<std::optional<CommAnswer>> answers_;

 private:
  bool all_or_none_, any_made_ = false;
  size_t answered_ = 0;
};

/// Accepts one comm for each listener, in whatever order the other end connects.
class AcceptingComms : public CommsInTheMaking {
 public:
  AcceptingComms(std::vector<Listener> listeners, bool all_or_none);
  /// Tries to accept the comms that have no answer yet.
  Status advance();
  std::unique_ptr<DeviceHandleStorage> take_device_handle(size_t i) { return std::move(device_handles_[i]); }

 private:
  std::vector<Listener> listeners_;
};

/// Connects to each handle from the device with the same index. The comms become ready in any order.
class ConnectingComms : public CommsInTheMaking {
 public:
  /// @param deadline for all comms together
  ConnectingComms(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles, Deadline deadline,
                  const HandshakePatience& patience);
  ConnectingComms(ConnectingComms&&) noexcept;
  ~ConnectingComms();
  /// Tries to connect the comms that have no answer yet. @return true: all have an answer. Comms for which the patience has ended
  /// have kTimeout, or the plugin's more precise reason.
  Result<bool> advance();

 private:
  class Attempt;
  bool patience_is_over();

  std::vector<Attempt> attempts_;
  Deadline deadline_;
  HandshakePatience patience_;
  TimePoint begin_;
  std::optional<Deadline> for_others_;
};

/// Makes ConnectingComms and waits until all have an answer. @return an answer for each handle, in order; an error that concerns
/// all
Result<std::vector<CommAnswer>> connect_all(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles,
                                            const HandshakeWait& wait, const HandshakePatience& patience);

/// Calls `try_once` until it has an answer other than "not yet". The pauses between calls are short compared with the time spent
/// so far.
/// @return the answer; kTimeout at the deadline; kCancelled when stopped; the bootstrap channel's error about the peer
template <class Try>
auto until_answer(const HandshakeWait& wait, const char* operation, Try try_once) -> decltype(try_once()) {
  constexpr Duration kFirstPause = std::chrono::microseconds(50), kLongestPause = std::chrono::milliseconds(5);
  constexpr int kPartOfTime = 64;
  const TimePoint begin = Clock::steady().now();
  for (;;) {
    auto answer = try_once();
    if (!answer.is_ok() || answer->has_value()) return answer;
    if (wait.peer != nullptr) TCPX_RETURN_IF_ERROR(wait.peer->peer_status());
    if (wait.stop != nullptr && wait.stop->load()) return Status(Code::kCancelled, operation, "interrupted");
    if (wait.deadline.expired()) return Status(Code::kTimeout, operation, "the other end did not come until the deadline");
    const Duration pause = std::clamp((Clock::steady().now() - begin) / kPartOfTime, kFirstPause, kLongestPause);
    std::this_thread::sleep_until(Deadline::after(pause).earlier(wait.deadline).at());
  }
}

/// Connects to the listener of `handle`. `handle` itself does not change: the plugin writes into a copy (1, 2).
/// @return the same errors as Listener::accept
Result<Comm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait);

}  // namespace tcpx
