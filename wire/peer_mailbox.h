// PeerMailbox: how the two halves of a pipeline talk while data moves. Messages are ordered and reliable. Sending never blocks, and
// neither sending nor receiving allocates. The real links send LaneFrames over the connection (control_stream.h,
// bootstrap_channel.h); tests use one made of two queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcpx/status.h"

namespace tcpx {

/// The types of messages; their payloads are in transfer/peer_messages.h. A number from a peer may be any other, too.
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

/// Receives the messages of the peer, in order.
class PeerMessageSink {
 public:
  virtual ~PeerMessageSink() = default;
  /// @param payload valid during the call. The sink itself must deal with errors in it.
  virtual void on_peer_message(PeerMessage type, std::span<const std::byte> payload) = 0;
};

/// One thread at a time.
class PeerMailbox {
 public:
  virtual ~PeerMailbox() = default;
  /// Delivers messages to `sink` from now on; null: drops them.
  virtual void deliver_to(PeerMessageSink* /*sink*/) {}
  /// Sends a message of at most kMaxPeerMessageBytes (transfer/peer_messages.h).
  virtual Status post(PeerMessage type, std::span<const std::byte> payload) = 0;
  /// Delivers what has arrived, without waiting. @return false: nothing more will come, because the peer has finished
  /// successfully. An error is final.
  virtual Result<bool> pump() { return true; }
};

}  // namespace tcpx
