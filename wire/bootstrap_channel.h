// BootstrapChannel: the out-of-band TCP connection between two ends that set up a transfer.
//
// Both ends hold one; from the hello on they are equals. Frames arrive in the order they were sent, every wait has a deadline,
// and the channel ends with `finish`, in which each side tells the other its result. Because each side leaves only after it has
// read the other's last frame, nothing that was sent is lost when the sockets close and nobody has to wait "long enough".
// Alternatively, `hand_over` ends the set-up, and its stream goes on without it.
//
// The first error sticks: when the peer is gone, has broken the protocol or has reported a failure, every later call returns that
// error. A deadline that passes while receiving is not such an error; the call may be repeated. One thread at a time per channel.
//
// A program that uses a pipeline without an endpoint keeps the channel, and the halves of the pipeline talk over it: at most one
// pipeline in each direction.
//
// A `stop` flag, where one is given, ends waits early with kCancelled "interrupted"; a signal handler may set it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
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
#include "wire/control_stream.h"
#include "wire/peer_mailbox.h"
#include "wire/set_up_messages.h"

namespace tcpx {

/// Lets another thread watch a channel that is in use, and end its waits.
struct ChannelWatch {
  std::atomic<bool> stop{false};      ///< ends waits early
  std::atomic<TimePoint> heard_at{};  ///< when the last whole frame of the peer was read
};

class BootstrapChannel : private ControlSink {
 public:
  /// Called by BootstrapServer::accept after the hello, and by bootstrap_connect before it.
  /// @param socket connected and non-blocking. @param peer_build version text of the other end's build
  /// @param stop may be null; otherwise it must outlive the channel. When it is set, `finish` still waits up to a second, in
  /// which a live peer answers.
  /// @param first a frame of the set-up that has been read already. @param tls as in ControlStream::attach
  BootstrapChannel(UniqueFd socket, const SocketAddress& peer, std::string peer_build, const std::atomic<bool>* stop = nullptr,
                   std::optional<Frame> first = std::nullopt, std::unique_ptr<TlsSession> tls = nullptr);

  const SocketAddress& peer() const { return peer_; }
  const std::string& peer_build() const { return peer_build_; }
  /// The flag that ends waits early; may be null.
  const std::atomic<bool>* stop() const { return stop_; }
  /// Makes `watch.stop` the flag that ends waits early, and records in `watch` when the peer was heard. @param watch must outlive
  /// the channel
  void watch_with(ChannelWatch& watch);
  /// Network interface that the channel goes over; "" when it is unknown.
  std::string interface() const { return interface_of_socket(stream_->fd()); }

  /// Round-trip time to the peer, as far as the kernel has measured it (round_trip_of).
  Duration round_trip() const { return round_trip_of(stream_->fd()); }

  /// Sends the client's hello. Other messages may follow at once.
  Status say_hello(Deadline deadline);
  /// Receives the server's hello, which is its first message. @return the server's report when it takes no client now
  Status hear_hello(Deadline deadline);

  /// Sends 1 ... kMaxHandlesPerFrame handles in one message.
  Status send_handles(std::span<const Handle> handles, Deadline deadline);
  /// Receives the handles of one message. @return kProtocol when there are more than `max_count`
  Result<std::vector<Handle>> receive_handles(size_t max_count, Deadline deadline);

  /// Sends `mine` and returns the peer's parameters. Both ends call it. Compares the parameters named in `must_match`, so that
  /// two programs started with different sizes stop here, both with the same message, and not in the middle of the data.
  /// @return kMismatch naming each parameter that differs, with both values
  Result<Parameters> exchange_parameters(const Parameters& mine, std::span<const std::string_view> must_match, Deadline deadline);

  /// The two halves of `exchange_parameters`, for ends that speak in turn. They do not compare.
  Status send_parameters(const Parameters& mine, Deadline deadline);
  Result<Parameters> receive_parameters(Deadline deadline);
  /// Type of the oldest frame that has come and that no call has taken yet, as far as `peer_status` has read; nullopt: none.
  std::optional<FrameType> next_message() const { return inbox_.empty() ? std::nullopt : std::optional(inbox_.front().type); }

  /// Waits until the peer has called `barrier` as often as this end.
  Status barrier(Deadline deadline);

  /// Reads what has arrived, without waiting. Call it while waiting for something else (an accept, a transfer), so that a peer
  /// that dies or gives up is noticed at once. @return ok while the peer is there and has not finished; kPeerGone; the peer's
  /// report
  Status peer_status();

  /// The mailbox of a pipeline at the peer, as ControlStream::mailbox_to. The channel must outlive it, and must not be moved while
  /// there is one.
  std::unique_ptr<PeerMailbox> mailbox_to(bool sender);
  /// The stream that `hand_over` will return, for mailboxes that are used after it.
  ControlStream& stream() { return *stream_; }

  /// Performs the closing handshake: tells the peer `mine`, waits for the peer's result and closes. Call it also after an error,
  /// so that the peer learns of it.
  /// @return `mine` when it is an error; otherwise the peer's result, or the reason why it did not come
  Status finish(const Status& mine, Deadline deadline);

  /// Tells the peer why this end gives up, as far as the socket takes it at once, and closes. The peer reads the reason before
  /// the end of the connection.
  void leave(const Status& why);

  /// Ends the set-up at this end and uses up the channel: frames that the peer sends from now on are not for it, and the stream
  /// keeps those that have come.
  /// @return kProtocol: some frames have not been taken, or some peer messages have not been sent; the peer's report when it has
  /// finished instead. After an error only `finish` and `leave` may be called.
  Result<std::unique_ptr<ControlStream>> hand_over();

 private:
  class Mailbox;

  bool takes(const FrameHeader& header) override;
  Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) override;
  Status flush();
  Status send_all(const Frame& frame, Deadline deadline);
  Status send(const Frame& frame, Deadline deadline);
  Result<Frame> receive(Deadline deadline);
  Status read_available();
  Status wait_for_bytes(Deadline deadline, const std::atomic<bool>* stop) const;
  Status verdict() const;
  Status nothing_waits() const;
  Status stick(Status status);

  std::unique_ptr<ControlStream> stream_;
  SocketAddress peer_;
  std::string peer_build_;
  const std::atomic<bool>* stop_;
  std::atomic<TimePoint>* heard_at_ = nullptr;
  std::deque<Frame> inbox_;           // frames that have come and that no call has taken yet
  std::optional<Status> peer_final_;  // the peer's finish frame
  Status broken_;                     // why the socket can no longer be used
  uint64_t barriers_ = 0;
  bool peer_has_gone_on_ = false;  // the next frame is not of the set-up, and is for no mailbox
  bool has_mailboxes_ = false;
  std::array<PeerMessageSink*, 2> sinks_{};  // by LaneFrame::to_sender; messages for none are dropped
};

/// Reads what has arrived into the assembler, without waiting. @param tls established over `fd`; null: in clear
/// @return true when the frame is whole; false: not yet, or the frame is not of the set-up; kPeerGone at the end of the stream;
/// the assembler's errors
Result<bool> read_frame_part(int fd, FrameAssembler& assembler, TlsSession* tls = nullptr);

}  // namespace tcpx
