// ControlStream: the control connection's socket with its buffers, once the setup is over. Sends are collected and leave
// together, reads take what there is: many small messages cost one system call.
//
// The flows of the pipeline's halves travel on it too: `open_flow` is a PeerLink whose `pump` only tells how the stream is,
// because the owner's `receive` delivers for all.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "endpoint/wire.h"
#include "transfer/peer_link.h"

namespace tcpx {

/// Takes frames in order. Not those of type kPeer, which go to their flows.
class ControlSink {
 public:
  virtual ~ControlSink() = default;
  /// @param payload valid during the call. @return an error breaks the stream with it
  virtual Status on_frame(const ControlHeader& header, std::span<const std::byte> payload) = 0;
};

/// One thread at a time.
class ControlStream {
 public:
  /// Without a socket: `attach` gives it one. Until then frames are collected.
  ControlStream();
  ~ControlStream();
  ControlStream(const ControlStream&) = delete;

  /// @param socket connected, non-blocking; nothing of the setup is left in it.
  void attach(UniqueFd socket);
  int fd() const { return socket_.get(); }

  /// Flows have the same numbers at both ends because both open them in the same order. The stream must outlive them.
  std::unique_ptr<PeerLink> open_flow();

  /// Collects one frame. `header.payload_bytes` is set here. Errors show in `status`.
  void send(ControlHeader header, std::span<const std::byte> payload = {});
  /// The same in parts, without a copy in between: begin, append to the vector, end.
  std::vector<std::byte>& begin_frame(const ControlHeader& header);
  void end_frame();
  /// Bytes collected that the socket has not taken.
  size_t backlog() const { return outgoing_.size() - outgoing_sent_; }
  /// Hands to the socket what it takes. @return true when bytes left
  bool flush();
  /// Reads what there is, at most about a megabyte, and hands every whole frame to `sink`. @return true when something came
  bool receive(ControlSink& sink);

  /// Ok, or why the stream is broken, for good: kPeerGone at its end, kProtocol, the sink's error, kExhausted when the peer does
  /// not read.
  const Status& status() const { return status_; }
  void fail(Status reason);

  /// Asks the kernel (TCP_INFO) when the peer's host has last answered anything. Call it a few times a second; it fails the
  /// stream with kPeerGone after `silence`. A peer whose process does not read is not dead: its host answers.
  void check_alive(Duration silence);

 private:
  class Flow;
  bool parse(ControlSink& sink);

  UniqueFd socket_;
  Status status_;
  std::vector<std::byte> outgoing_;
  size_t outgoing_sent_ = 0;
  size_t frame_begin_ = 0;
  std::vector<std::byte> incoming_;  // ring or sliding window of what was read and is no whole frame yet
  size_t incoming_begin_ = 0, incoming_end_ = 0;
  uint32_t next_flow_ = 0;
  std::map<uint32_t, PeerMessageSink*> sinks_;
};

}  // namespace tcpx
