// BootstrapChannel: the out-of-band TCP connection between two ends that set up a transfer.
//
// Both ends hold one; from the hello on they are equals. Frames arrive in the order they were sent, every wait has a deadline,
// and the channel ends with `finish`, in which each side tells the other how it went. Because each side leaves only after it has
// read the other's last frame, nothing that was sent is lost when the sockets close and nobody has to wait "long enough".
// Or the connection is set up and goes on as a ControlStream (`hand_over`).
//
// The first error sticks: when the peer is gone, has broken the protocol or has reported a failure, every later call says so. A
// deadline that passes while receiving is not such an error; the call may be repeated. One thread at a time per channel.
//
// Pipelines whose halves must talk while data moves share the channel with everything else: each opens a *flow*, by which its
// messages are told from others. Flows have the same numbers at both ends because both open them in the same order.
//
// A `stop` flag, where one is given, ends waits early with kCancelled "interrupted"; a signal handler may set it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/link_state.h"
#include "base/socket_address.h"
#include "base/socket_io.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"
#include "wire/set_up_messages.h"
#include "wire/peer_link.h"

namespace tcpx {

/// A channel in use as another thread sees it and ends it.
struct ChannelWatch {
  std::atomic<bool> stop{false};      ///< ends waits early
  std::atomic<TimePoint> heard_at{};  ///< when the last whole frame of the peer was read
};

/// A connection that is set up.
struct HandedOver {
  UniqueFd socket;
  std::vector<std::byte> begun;  ///< bytes of the next frame that have been read already
};

class BootstrapChannel {
 public:
  /// Made by BootstrapServer::accept, after the hello, and by bootstrap_connect, before it.
  /// @param socket connected and non-blocking; @param peer_build version text of the other end's build.
  /// @param stop may be null; else must outlive the channel. It gives `finish` one more second, in which a living peer learns the
  /// end. @param first a frame that has been read already, no peer message
  BootstrapChannel(UniqueFd socket, const SocketAddress& peer, std::string peer_build, const std::atomic<bool>* stop = nullptr,
                   std::optional<Frame> first = std::nullopt);

  const SocketAddress& peer() const { return peer_; }
  const std::string& peer_build() const { return peer_build_; }
  /// The flag that ends waits early; may be null.
  const std::atomic<bool>* stop() const { return stop_; }
  /// From now on this flag ends waits early. @param watch must outlive the channel
  void watch_with(ChannelWatch& watch);
  /// Network interface that the channel goes over; "" when that cannot be told.
  std::string interface() const { return interface_of_socket(socket_.get()); }

  /// How far away the peer is, as far as the kernel has seen (round_trip_of).
  Duration round_trip() const { return round_trip_of(socket_.get()); }

  /// The client's hello, which other messages may follow at once.
  Status say_hello(Deadline deadline);
  /// The server's, which comes first. @return its report when it takes no client now
  Status hear_hello(Deadline deadline);

  /// 1 ... kMaxHandlesPerFrame handles in one message.
  Status send_handles(std::span<const Handle> handles, Deadline deadline);
  /// The handles of one message. kProtocol when they are more than `max_count`.
  Result<std::vector<Handle>> receive_handles(size_t max_count, Deadline deadline);

  /// Both ends call it: sends `mine`, returns the peer's. Compares those named in `must_match`, so that two programs started with
  /// different sizes stop here, both with the same message, and not in the middle of the data.
  /// @return kMismatch naming each one that differs, with both values.
  Result<Parameters> exchange_parameters(const Parameters& mine, std::span<const std::string_view> must_match, Deadline deadline);

  /// One half of the above each, for ends that speak in turn.
  Status send_parameters(const Parameters& mine, Deadline deadline);
  Result<Parameters> receive_parameters(Deadline deadline);
  /// What the peer has sent next that nobody has asked for yet, as far as `peer_status` has seen; nullopt: nothing.
  std::optional<FrameType> next_message() const {
    return inbox_.empty() ? std::nullopt : std::optional(inbox_.front().type);
  }

  /// Returns when the peer has called it as often as this end.
  Status barrier(Deadline deadline);

  /// Looks without waiting. Call it while waiting for something else (an accept, a transfer), so that a peer that dies or gives
  /// up is noticed at once. Ok while the peer is there and has not finished; kPeerGone, or what the peer reported.
  Status peer_status();

  /// The next flow. The channel must outlive it and not be moved while there is one.
  std::unique_ptr<PeerLink> open_flow();

  /// Closing handshake: tells the peer `mine`, waits for its verdict and closes. Also after an error, so that the peer learns of
  /// it.
  /// @return `mine` when it is an error, else what the peer reported, else why its verdict did not come.
  Status finish(const Status& mine, Deadline deadline);

  /// Tells the peer why this end gives up, as far as the socket takes it at once, and closes. The peer reads that before the end.
  void leave(const Status& why);

  /// Ends the set-up at this end: frames that the peer sends from now on are not for this channel, which is used up. There must be no
  /// flow any more.
  /// @return kProtocol: there are frames that this end has not asked for, or peer messages not sent yet; the peer's report
  /// when it has finished instead. After an error only `finish` and `leave` are left.
  Result<HandedOver> hand_over();

 private:
  class Flow;

  Status post(uint64_t flow, PeerMessage type, std::span<const std::byte> payload);
  Status flush();
  Status deliver();
  Status send_bytes(std::span<const std::byte> bytes, Deadline deadline);
  Status send(const Frame& frame, Deadline deadline);
  Result<Frame> receive(Deadline deadline);
  Status read_available();
  bool peer_has_gone_on() const;
  Status verdict() const;
  Status nothing_waits() const;
  Status stick(Status status);

  UniqueFd socket_;
  SocketAddress peer_;
  std::string peer_build_;
  const std::atomic<bool>* stop_;
  std::atomic<TimePoint>* heard_at_ = nullptr;
  FrameAssembler assembler_;
  std::deque<Frame> inbox_;           // frames that have come and nobody has asked for yet
  std::optional<Status> peer_final_;  // the peer's finish frame
  Status broken_;                     // why the socket can no longer be used
  uint64_t barriers_ = 0;
  uint64_t next_flow_ = 0;
  std::map<uint64_t, PeerMessageSink*> sinks_;  // of flows that want their messages; those of others are dropped
  std::vector<std::byte> outgoing_;             // peer messages that the socket has not taken yet
  size_t outgoing_sent_ = 0;                    // of them
};

/// Reads what there is, without waiting, into the assembler.
/// @return true when its frame is whole; false also at a frame that is not of the set-up; kPeerGone at the end of the stream; the
/// assembler's errors.
Result<bool> read_frame_part(int fd, FrameAssembler& assembler);

}  // namespace tcpx
