// PeerLink: how the two halves of a pipeline talk while data moves. Ordered and reliable; sending never blocks and neither way
// allocates. The real ones send LaneFrames over the connection
// (control_stream.h, bootstrap_channel.h), tests have one of two queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcpx/status.h"

namespace tcpx {

/// The messages; their payloads are in transfer/peer_messages.h. A peer may send any other number.
enum class PeerMessage : uint64_t {
  kGrant = 1,
  kRegrant,
  kChannelDown,
  kReceived,
  kSubmitted,
  kDelivered,
};
/// Bytes of the largest message.
inline constexpr size_t kMaxPeerMessageBytes = 512;

/// Takes messages of its peer, in order.
class PeerMessageSink {
 public:
  virtual ~PeerMessageSink() = default;
  /// @param payload valid during the call. An error in it is the sink's own failure.
  virtual void on_peer_message(PeerMessage type, std::span<const std::byte> payload) = 0;
};

/// One thread at a time.
class PeerLink {
 public:
  virtual ~PeerLink() = default;
  /// From now on messages go to `sink`, null: nowhere.
  virtual void deliver_to(PeerMessageSink* sink) = 0;
  /// Sends a message of at most kMaxPeerMessageBytes (transfer/peer_messages.h).
  virtual Status post(PeerMessage type, std::span<const std::byte> payload) = 0;
  /// Delivers what has arrived, without waiting. @return false: that was all, the peer has finished and all is well with it; an
  /// error is the link's for good.
  virtual Result<bool> pump() = 0;
};

}  // namespace tcpx
