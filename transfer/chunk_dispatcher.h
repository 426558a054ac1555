// ChunkDispatcher: which chunk is posted on which channel, and when a transfer has ended. Chosen once, as a pipeline is made:
//
//   InOrderDispatcher    one channel: both ends post in the order of submission, and need not talk
//   PlacingDispatcher    several, at the one end: places chunks on channels, and tells the other end where
//   FollowingDispatcher  several, at the other end: posts each where it has been told
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "transfer/channel_set.h"
#include "wire/peer_link.h"
#include "transfer/transfer_ring.h"

namespace tcpx {

/// The surroundings of a dispatcher. All must outlive it.
struct DispatcherParts {
  ChannelSet& channels;
  TransferRing& transfers;
  PeerLink* peer = nullptr;  ///< null only with one channel
  uint32_t chunk_bytes = kDefaultChunkBytes;
  uint32_t longest_chunk_bytes = 0;
  bool failover = false;        ///< chunks of a lost channel go over the others; several channels only
  bool sender_places = false;  ///< PipelineOptions::sender_places
};

/// One thread at a time. An error is the pipeline's.
class ChunkDispatcher {
 public:
  static std::unique_ptr<ChunkDispatcher> create(const DispatcherParts& parts);
  virtual ~ChunkDispatcher() = default;

  /// A transfer has been added to the ring.
  virtual Status submitted(TransferId) { return Status::ok(); }
  /// Posts all that can be posted now. @return whether anything was
  virtual Result<bool> post(TimePoint now) = 0;
  /// Counts chunks that a channel has brought to their good end, and ends their transfers. @return the first error; all of them
  /// have been counted all the same
  virtual Status finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint now) = 0;
  /// With failover: the channel has failed, and nothing touches the memory of its chunks any more.
  virtual void lost(size_t /*channel*/) {}

  /// A message of the peer, except "channel down". @return kProtocol when it is not for this half, or does not add up
  virtual Status take(PeerMessage type, std::span<const std::byte> payload);
  /// True when nothing more can be posted before the peer says something.
  virtual bool waits_for_peer() const { return false; }
  /// True when a pending transfer cannot end by the chunks under way. A peer that finishes is done with its half of all
  /// transfers, which is not to say that the plugin has delivered everything here, or has told us that it has.
  virtual bool needs_peer() const { return false; }

  /// Chunks that wait to be posted, each line behind a line break, and those that wait for one channel. For people.
  virtual std::string waiting() const { return {}; }
  virtual std::string waiting_for(size_t /*channel*/) const { return {}; }
};

/// One channel, on which chunks meet in the order of posting at both ends.
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

/// A chunk by number, before it is known here what it stands for.
struct ChunkName {
  uint64_t transfer = 0;
  uint64_t chunk = 0;
  uint64_t transfer_bytes = 0;  ///< as it was submitted at the end that places it
};

}  // namespace tcpx
