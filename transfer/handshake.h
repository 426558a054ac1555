// Handshake: from a bootstrap channel to a comm at each end. One end listens and ships the handle, accepts, and owns the
// receiving comm; the other gets the handle, connects, and owns the sending comm.
//
// While an end waits for the plugin it watches the bootstrap channel: a peer that dies or gives up ends the wait at once, not at
// the deadline, because plugins do not notice a peer that never came. The device's GPU must be current on the calling thread
// (27).
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

/// Comms that one end makes side by side: "not yet" of one holds up none of the others, because which of them can go on may depend
/// on which of them the other end has got to. An error that is none of a single way (this process is out of something) is that of
/// all, and so is each where all or none must stand.
class CommsInTheMaking {
 public:
  bool any_made() const { return any_made_; }
  bool all_answered() const { return answered_ == answers_.size(); }
  /// nullopt: not yet
  std::optional<CommAnswer>& answer(size_t i) { return answers_[i]; }

 protected:
  CommsInTheMaking(size_t count, bool all_or_none) : answers_(count), all_or_none_(all_or_none) {}
  template <class Try>
  Status ask(Try try_one);

  std::vector<std::unique_ptr<DeviceHandleStorage>> device_handles_;  // of accepted comms, which they outlive
  std::vector<std::optional<CommAnswer>> answers_;

 private:
  bool all_or_none_, any_made_ = false;
  size_t answered_ = 0;
};

/// One comm for each listener, in any order that the other end comes to them.
class AcceptingComms : public CommsInTheMaking {
 public:
  AcceptingComms(std::vector<Listener> listeners, bool all_or_none);
  /// Asks for those that have not answered yet.
  Status advance();
  std::unique_ptr<DeviceHandleStorage> take_device_handle(size_t i) { return std::move(device_handles_[i]); }

 private:
  std::vector<Listener> listeners_;
};

/// A comm to each handle, from the device of the same place, in any order of their answers.
class ConnectingComms : public CommsInTheMaking {
 public:
  /// @param deadline of all
  ConnectingComms(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles, Deadline deadline,
                  const HandshakePatience& patience);
  ConnectingComms(ConnectingComms&&) noexcept;
  ~ConnectingComms();
  /// Asks for those that have not answered yet. @return true: it is over, all have an answer, kTimeout, or what the plugin knows
  /// instead, where patience has ended
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

/// Waits for all of `ConnectingComms`. @return an answer for each, in order; an error of all of them
Result<std::vector<CommAnswer>> connect_all(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles,
                                            const HandshakeWait& wait, const HandshakePatience& patience);

/// Asks `try_once` until it has an answer other than "not yet", with pauses between: short beside the time that it has taken so far.
/// @return the answer, kTimeout at the deadline, kCancelled when stopped, the bootstrap channel's error about the peer.
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

/// Connects to the listener that `handle` leads to. `handle` itself stays as it is: the plugin writes into a copy (1, 2).
/// @return as Listener::accept.
Result<Comm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait);

}  // namespace tcpx
