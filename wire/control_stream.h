// ControlStream: the control connection's socket with its buffers, once the setup is over. Sends are collected and leave
// together, reads take what there is: many small messages cost one system call. Between two endpoints of one host the bytes go
// through shared memory instead (base/shared_stream.h), and most cost none.
//
// The flows of the pipeline's halves travel on it too: `open_flow` is a PeerLink whose `pump` only tells how the stream is,
// because the owner's `receive` delivers for all.
//
// Memory: a new or idle stream has no buffers. The incoming one begins with 64 KiB, has 256 KiB while reads fill it, and grows to
// a longer frame when one comes, by what its header says: 2 MiB at most. The outgoing one grows to what is collected.
// `check_alive`, which is called now and then, frees an empty buffer that nothing used since the last call, and one beyond 64 KiB
// or 256 KiB when less was used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/shared_stream.h"
#include "base/unique_fd.h"
#include "wire/messages.h"
#include "transfer/bootstrap_frame.h"
#include "transfer/peer_link.h"

namespace tcpx {

/// Most bytes the socket may not have taken yet; more is kExhausted.
inline constexpr size_t kMaxBacklogBytes = 64u << 20;

/// Takes frames in order. Not those of type kPeer, which go to their flows.
class ControlSink {
 public:
  virtual ~ControlSink() = default;
  /// May call `send` and `fail` of the stream.
  /// @param header checked (check_header). @param payload valid during the call, at any alignment.
  /// @return an error breaks the stream with it
  virtual Status on_frame(const ControlHeader& header, std::span<const std::byte> payload) = 0;
};

/// One thread at a time.
class ControlStream {
 public:
  /// Without a socket: `attach` gives it one. Until then frames are collected.
  ControlStream() = default;
  ControlStream(const ControlStream&) = delete;
  ControlStream& operator=(const ControlStream&) = delete;

  /// Sets TCP_NODELAY and the keep-alive that `check_alive` needs.
  /// @param socket connected, non-blocking. @param last_frame the last one of the set-up, where that is left in it (DetachedSocket):
  /// frames leave before it has come, and a peer that failed says so in it.
  void attach(UniqueFd socket, std::optional<FrameAssembler> last_frame = {});
  /// Instead of a socket. What it refers to must outlive this.
  void attach(std::unique_ptr<SharedStream> shared);
  bool is_shared() const { return shared_ != nullptr; }
  /// The descriptor to sleep on, once `prepare_sleep` has said that nothing has come.
  int fd() const { return shared_ ? shared_->fd() : socket_.get(); }

  /// Flows have the same numbers at both ends because both open them in the same order. The stream must outlive them. Their
  /// messages leave with the next `flush`; those for a flow without a sink are dropped.
  std::unique_ptr<PeerLink> open_flow();

  /// Collects one frame of wire.h. Errors show in `status`; frames of a broken stream are dropped.
  template <class Frame>
  void send(const Frame& frame) {
    if (!takes_frames()) return;
    encode(frame, outgoing_);
    outgoing_peak_ = std::max(outgoing_peak_, outgoing_.size());
  }
  /// Bytes collected that the socket has not taken.
  size_t backlog() const { return outgoing_.size() - outgoing_sent_; }
  /// Hands to the socket what it takes. When that fails the peer may have said why before it left: `receive` first delivers what
  /// it has sent, then breaks the stream. @return true when bytes left
  bool flush();
  /// Reads what there is, at most a megabyte, and hands every whole frame to `sink`. @return true when something came
  /// @param readable false: `fd` has shown nothing to read, so that shared memory alone is looked at
  bool receive(ControlSink& sink, bool readable = true);
  /// Something has come that `fd` need not show. Costs no system call.
  bool has_arrived() const { return shared_ != nullptr && (shared_->has_something() || !send_error_.is_ok()); }
  /// Shared memory has room for more of the backlog. Costs no system call.
  bool has_room() const { return shared_ != nullptr && backlog() > 0 && shared_->has_room(); }
  /// From now on what comes shows at `fd`, until `end_sleep`, and room for the backlog does. @param bulk WakeFor, what else does
  /// @return true when something has come already, or there is room
  bool prepare_sleep(uint32_t bulk = 0) {
    return shared_ != nullptr && shared_->prepare_sleep(kWakeForBytes | (backlog() > 0 ? kWakeForRoom : 0u) | bulk);
  }
  /// Wakes the peer if it waits for that, which has been stored in other memory that both share.
  void wake(uint32_t what) {
    if (shared_ != nullptr) shared_->wake(what);
  }
  void end_sleep() {
    if (shared_ != nullptr) shared_->end_sleep();
  }

  /// Ok, or why the stream is broken, for good: kPeerGone at its end, kProtocol or kUnsupported for what is no frame, the sink's
  /// error, kExhausted when the peer does not read, kSystem.
  const Status& status() const { return status_; }
  /// Breaks the stream; only the first reason counts. The peer reads its end; the socket stays open as long as the stream.
  void fail(Status reason);

  /// Lets go of the socket of a broken stream.
  void close() {
    socket_.reset();
    if (shared_ != nullptr) shared_->close();
  }

  /// Looks whether the peer's host still answers (wire/host_signs.h) and frees memory. Call it a few times a second. Fails
  /// the stream with kPeerGone after `silence`, which must be more than 3 s because an idle host is asked once a second. A peer
  /// whose process does not read is not dead: its host answers. Of a peer on this host the kernel tells the end by itself.
  void check_alive(Duration silence);
  size_t buffer_bytes() const { return outgoing_.capacity() + incoming_bytes_; }

 private:
  class Flow;
  bool takes_frames();
  Result<size_t> hand_over(std::span<const std::byte> bytes);
  Result<size_t> take_in(std::span<std::byte> room);
  bool may_read();
  bool hear_last_frame();
  void parse(ControlSink& sink);
  Status deliver_to_flow(const ControlHeader& header, std::span<const std::byte> payload);
  void make_room(size_t bytes);
  void free_unused();

  UniqueFd socket_;
  std::optional<FrameAssembler> last_frame_;  // of the set-up, before all others
  std::unique_ptr<SharedStream> shared_;  // in its place
  TimePoint attached_at_;
  Status status_;
  Status send_error_;  // of the socket; becomes `status_` when all that had arrived is delivered
  std::vector<std::byte> outgoing_;
  size_t outgoing_sent_ = 0;  // of them
  size_t outgoing_peak_ = 0;  // largest use since check_alive
  // A sliding window of what was read: [begin, end) is not delivered yet.
  std::unique_ptr<std::byte[]> incoming_;
  size_t incoming_bytes_ = 0, incoming_begin_ = 0, incoming_end_ = 0;
  size_t incoming_wanted_ = 0;  // bytes of the frame at begin, when it is longer than what has come
  size_t incoming_peak_ = 0;
  std::vector<PeerMessageSink*> flows_;  // by number; null: nobody listens
};

}  // namespace tcpx
