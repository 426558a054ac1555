// PeerLink: how the two halves of a pipeline talk while data moves. Ordered and reliable; sending never blocks and neither way
// allocates. The real one runs over the bootstrap channel (bootstrap_channel.h), tests have one of two queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcpx/status.h"
#include "wire/frame.h"

namespace tcpx {

/// Front of every payload below. Pipelines on one bootstrap channel are numbered in the order in which they are opened.
struct FlowHeader {
  uint32_t flow;
  uint32_t reserved;
};
static_assert(sizeof(FlowHeader) == 8);

/// Room for the largest message, without FlowHeader.
inline constexpr size_t kMaxPeerMessageBytes = 512;

/// Takes messages of its peer, in order.
class PeerMessageSink {
 public:
  virtual ~PeerMessageSink() = default;
  /// @param payload valid during the call. An error in it is the sink's own failure.
  virtual void on_peer_message(FrameType type, std::span<const std::byte> payload) = 0;
};

/// One thread at a time.
class PeerLink {
 public:
  virtual ~PeerLink() = default;
  /// From now on messages go to `sink`, null: nowhere.
  virtual void deliver_to(PeerMessageSink* sink) = 0;
  /// Sends a message of at most kMaxPeerMessageBytes (transfer/peer_messages.h).
  virtual Status post(FrameType type, std::span<const std::byte> payload) = 0;
  /// Delivers what has arrived, without waiting. @return false: that was all, the peer has finished and all is well with it; an
  /// error is the link's for good.
  virtual Result<bool> pump() = 0;
};

}  // namespace tcpx
