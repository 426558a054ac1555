// ControlStream: carries the frames of a connection, from the first after the hellos (BootstrapChannel) to the bye. Frames to send
// are collected and leave together, and a read takes all that has come, so many small messages cost one system call. Between two
// endpoints of one host the bytes go through shared memory instead of a socket (base/shared_stream.h) once the connection is set
// up, and most messages cost no system call.
//
// Memory: a new or idle stream has no buffers. The receive buffer starts at 64 KiB, has 256 KiB while reads fill it, and grows to
// the length that a frame's header announces, at most 2 MiB. The send buffer grows to what is collected. `check_alive` frees an
// empty buffer that was not used since its last call, and one beyond 64 KiB or 256 KiB when less was used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/shared_stream.h"
#include "base/unique_fd.h"
#include "secure/tls.h"
#include "wire/messages.h"
#include "wire/peer_mailbox.h"

namespace tcpx {

/// Most bytes that may wait to be sent; beyond it the stream fails with kExhausted.
inline constexpr size_t kMaxBacklogBytes = 64u << 20;
/// A frame with so much data is not collected: it leaves at once, with all before it, and its data is copied only as far as the
/// socket does not take it.
inline constexpr size_t kLongDataBytes = 16u << 10;

/// Receives frames in order.
class ControlSink {
 public:
  virtual ~ControlSink() = default;
  /// False: the stream keeps this frame for later, and reads nothing until a sink takes it. @param header checked
  virtual bool takes(const FrameHeader& /*header*/) { return true; }
  /// May call `send` and `fail` of the stream.
  /// @param header checked (check_header). @param payload valid during the call, at any alignment.
  /// @return an error breaks the stream and becomes its status
  virtual Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) = 0;
};

/// One thread at a time.
class ControlStream {
 public:
  /// The stream has no socket until `attach` gives it one, and collects frames until then.
  ControlStream() = default;
  ControlStream(const ControlStream&) = delete;
  ControlStream& operator=(const ControlStream&) = delete;

  /// Uses a socket. Sets TCP_NODELAY and the keep-alive that `check_alive` needs.
  /// @param socket connected, non-blocking. @param tls established over it; null: frames travel in clear
  void attach(UniqueFd socket, std::unique_ptr<TlsSession> tls = nullptr);
  /// Uses shared memory instead of a socket, which it closes if there is one. The rings and the socket of `shared` must outlive this
  /// object.
  void attach(std::unique_ptr<SharedStream> shared);
  /// As TlsSession::peer_name; "" in clear.
  std::string peer_name() const { return tls_ != nullptr ? tls_->peer_name() : std::string(); }
  bool is_shared() const { return shared_ != nullptr; }
  /// True while the peer, with which this end shares memory, has to be woken to read.
  bool peer_sleeps() const { return shared_ != nullptr && shared_->peer_sleeps(); }
  /// The descriptor to sleep on after `prepare_sleep` returned false.
  int fd() const { return shared_ ? shared_->fd() : socket_.get(); }

  /// The mailbox through which a pipeline sends its messages to the peer's half: LaneFrames of the network, which leave with the next
  /// `flush`. The stream must outlive it. @param sender true: the peer's half is the one that sends
  std::unique_ptr<PeerMailbox> mailbox_to(bool sender);

  /// Collects one frame of messages.h. Errors show in `status`; a broken stream drops its frames.
  template <class Frame>
  void send(const Frame& frame) {
    if (!takes_frames()) return;
    const size_t begin = outgoing_.size();
    if constexpr (requires { frame.data; }) {
      if (frame.data.size() >= kLongDataBytes) {
        encode_head(frame, outgoing_);
        return send_with_backlog(begin, frame.data);
      }
    }
    encode(frame, outgoing_);
    append_check(outgoing_, begin);
    outgoing_peak_ = std::max(outgoing_peak_, outgoing_.size());
    if (outgoing_.size() - begin >= kLongDataBytes) (void)flush();  // the peer works on it while this end makes the next one
  }
  /// Bytes collected and not yet taken by the socket.
  size_t backlog() const { return outgoing_.size() - outgoing_sent_; }
  /// Hands the socket as much as it takes. If that fails, the peer may have said why before it left: `receive` first delivers what
  /// the peer sent, then breaks the stream. @return true when bytes left
  bool flush() { return backlog() > 0 && (socket_ || shared_) && flush_backlog(); }
  /// Reads what has come, at most 1 MiB, and hands every whole frame to `sink`. @return true when something came, or
  /// a frame that had to wait was taken
  /// @param readable false: `fd` has shown nothing to read, so only shared memory is looked at
  bool receive(ControlSink& sink, bool readable = true);
  /// True when `receive` has something to do that `fd` may not show. Costs no system call.
  bool has_arrived() const {
    return holds_frame_ || has_decrypted() || (shared_ != nullptr && (shared_->has_something() || !send_error_.is_ok()));
  }
  /// True when TLS may have bytes that have come already, so that waiting for the socket may be in vain.
  bool has_decrypted() const { return tls_ != nullptr && tls_->may_have_more(); }
  /// True when shared memory has room for more of the backlog. Costs no system call.
  bool has_room() const { return shared_ != nullptr && backlog() > 0 && shared_->has_room(); }
  /// From now until `end_sleep`, `fd` shows incoming bytes and room for the backlog. @param bulk WakeFor bits: what else `fd` shows
  /// @return true when something has come already, or there is room
  bool prepare_sleep(uint32_t bulk = 0) {
    return shared_ != nullptr && shared_->prepare_sleep(kWakeForBytes | (backlog() > 0 ? kWakeForRoom : 0u) | bulk);
  }
  /// Wakes the peer if it waits for `what` (WakeFor bits), which this end has already stored in the shared area.
  void wake(uint32_t what) {
    if (shared_ != nullptr) shared_->wake(what);
  }
  void end_sleep() {
    if (shared_ != nullptr) shared_->end_sleep();
  }

  /// Ok while frames can be sent. The stream itself breaks only when everything that has come has been read.
  const Status& send_status() const { return status_.is_ok() ? send_error_ : status_; }
  /// Ok, or why the stream is broken for good: kPeerGone at the end of the stream; kProtocol or kUnsupported for bytes that are
  /// not a frame; the sink's error; kExhausted when the peer does not read; kSystem.
  const Status& status() const { return status_; }
  /// Breaks the stream; only the first reason counts. The peer sees its end at once, but the socket stays open until `close`.
  void fail(Status reason);
  /// While it is set, the peer of a broken stream sees its end only at `close_with`, which can still tell it why.
  void set_last_words(bool wanted) { last_words_ = wanted; }
  /// Closes the socket after a last frame, as far as the socket takes it at once. A broken stream sends it, too, unless it broke
  /// while frames waited.
  void close_with(const Frame& last);

  /// Closes the socket or the shared memory. The stream must be broken.
  void close() {
    tls_.reset();
    socket_.reset();
    if (shared_ != nullptr) shared_->close();
  }

  /// Checks that the peer's host still answers (wire/host_signs.h) and frees unused memory. Call it a few times a second. Fails
  /// the stream with kPeerGone after `silence`, which must be more than 3 s because an idle host is asked once a second. A peer
  /// whose process does not read is not dead: its host answers. When a peer on this host ends, the stream itself ends.
  void check_alive(Duration silence);
  size_t buffer_bytes() const { return outgoing_.capacity() + incoming_bytes_; }

 private:
  bool flush_backlog();
  void send_with_backlog(size_t begin, std::span<const std::byte> data);
  void fail_to_send(const Status& why);
  void drop_sent(size_t bytes);
  bool takes_frames();
  Result<size_t> hand_over(std::span<const std::byte> data, std::span<const std::byte> end);
  Result<size_t> take_in(std::span<std::byte> room);
  bool may_read();
  void parse(ControlSink& sink);
  void make_room(size_t bytes);
  void free_unused();

  UniqueFd socket_;
  std::unique_ptr<TlsSession> tls_;       // over socket_; null: in clear
  std::unique_ptr<SharedStream> shared_;  // instead of socket_
  TimePoint attached_at_;
  Status status_;
  Status send_error_;  // becomes `status_` when everything that had arrived is delivered
  std::vector<std::byte> outgoing_;
  size_t outgoing_sent_ = 0;  // bytes of outgoing_ already taken
  size_t outgoing_peak_ = 0;  // largest use since check_alive
  // The bytes [begin, end) of the buffer have been read and not delivered yet.
  std::unique_ptr<std::byte[]> incoming_;
  size_t incoming_bytes_ = 0, incoming_begin_ = 0, incoming_end_ = 0;
  size_t incoming_wanted_ = 0;  // bytes of the frame at begin, if not all of it has come
  size_t incoming_peak_ = 0;
  bool holds_frame_ = false;  // the frame at begin is whole, or its header is, and no sink has taken it
  bool last_words_ = false;
  bool is_cut_ = false;  // the stream broke while frames waited
};

}  // namespace tcpx
