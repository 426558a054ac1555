// ChunkDispatcher: decides which chunk is posted on which channel, and when a transfer has ended. A pipeline chooses one when it
// is made:
//
//   InOrderDispatcher    one channel: both ends post in the order of submission, and need not talk
//   PlacingDispatcher    several channels, at one end: places chunks on channels, and tells the other end where
//   FollowingDispatcher  several channels, at the other end: posts each chunk where it has been told
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "transfer/channel_set.h"
#include "transfer/transfer_ring.h"
#include "wire/peer_mailbox.h"

namespace tcpx {

/// The objects that a dispatcher works with. All must outlive it.
struct DispatcherParts {
  ChannelSet& channels;
  TransferRing& transfers;
  PeerMailbox* peer = nullptr;  ///< null only with one channel
  uint32_t chunk_bytes = kDefaultChunkBytes;
  uint32_t longest_chunk_bytes = 0;
  bool failover = false;       ///< chunks of a lost channel go over the others; several channels only
  bool sender_places = false;  ///< PipelineOptions::sender_places
};

/// One thread at a time. An error of any function fails the pipeline.
class ChunkDispatcher {
 public:
  static std::unique_ptr<ChunkDispatcher> create(const DispatcherParts& parts);
  virtual ~ChunkDispatcher() = default;

  /// Tells the dispatcher that a transfer has been added to the ring.
  virtual Status submitted(TransferId) { return Status::ok(); }
  /// Posts all chunks that can be posted now. @return true when a chunk was posted
  virtual Result<bool> post(TimePoint now) = 0;
  /// Counts chunks that a channel has sent or received successfully, and ends transfers that are complete. @return the first
  /// error; all chunks have been counted even then
  virtual Status finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint now) = 0;
  /// With failover: tells the dispatcher that the channel has failed and nothing touches the memory of its chunks any more.
  virtual void lost(size_t /*channel*/) {}

  /// Takes a message of the peer; "channel down" never comes here. @return kProtocol when the message is not for this half or is
  /// inconsistent
  virtual Status take(PeerMessage type, std::span<const std::byte> payload);
  /// True when no more chunks can be posted before the peer sends a message.
  virtual bool waits_for_peer() const { return false; }
  /// True when a pending transfer cannot end with the chunks in flight alone, so the peer is still needed. A peer that has
  /// finished is done with its half of all transfers, but the plugin may not have delivered everything here, or reported that it
  /// has.
  virtual bool needs_peer() const { return false; }

  /// Describes the chunks that wait to be posted, for people: one per line, each line after a line break.
  virtual std::string waiting() const { return {}; }
  /// Describes the chunks that wait for one channel.
  virtual std::string waiting_for(size_t /*channel*/) const { return {}; }
};

/// For one channel: the n-th chunk posted at one end meets the n-th chunk posted at the other.
class InOrderDispatcher final : public ChunkDispatcher {
 public:
  explicit InOrderDispatcher(const DispatcherParts& parts) : channels_(parts.channels), transfers_(parts.transfers) {}

  Result<bool> post(TimePoint now) override;
  Status finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint now) override;

 private:
  ChannelSet& channels_;
  TransferRing& transfers_;
  uint64_t placing_ = 1;  // oldest transfer with chunks not yet posted
};

/// Names a chunk of a transfer that may not have been submitted at this end yet.
struct ChunkName {
  uint64_t transfer = 0;
  uint64_t chunk = 0;
  uint64_t transfer_bytes = 0;  ///< as submitted at the end that places the chunk
};

}  // namespace tcpx
