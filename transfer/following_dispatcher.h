// FollowingDispatcher: the half of several channels that posts what the other end grants (transfer/placing_dispatcher.h).
//
// Each channel's chunks are posted in the order in which they were granted, because the n-th send of a comm meets its n-th
// receive. At a receiver it tells the sender what has been delivered. With failover, at the sender, a transfer ends only when the
// peer has acknowledged all of it, because bytes that a plugin has taken may be lost with the channel.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "transfer/chunk_dispatcher.h"
#include "transfer/peer_messages.h"

namespace tcpx {

class FollowingDispatcher final : public ChunkDispatcher {
 public:
  explicit FollowingDispatcher(const DispatcherParts& parts)
      : parts_(parts), granted_(parts.channels.size()), delivered_(parts.channels.size()) {}

  Status submitted(TransferId id) override;
  Result<bool> post(TimePoint now) override;
  Status finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint now) override;
  void lost(size_t channel) override;
  Status take(PeerMessage type, std::span<const std::byte> payload) override;
  bool waits_for_peer() const override { return true; }
  bool needs_peer() const override;
  std::string waiting_for(size_t channel) const override;

 private:
  /// At the receiver, of a channel.
  struct Deliveries {
    uint64_t chunks = 0;  // in place
    uint64_t told = 0;    // of them
    uint64_t untold_bytes = 0;
  };

  Status check(const ChunkName& name);
  void end_if_complete(Transfer& transfer);
  Status take_grant(const Grant& grant);
  Status take_regrant(const Regrant& regrant);
  Status take_received(uint64_t number);
  Status queue(size_t channel, const ChunkName& name);
  void tell_deliveries(size_t channel, std::span<const ChunkEnd> ends);

  uint64_t count_chunks(uint64_t transfer_bytes) const {
    return ChunkPlan::make(transfer_bytes, parts_.chunk_bytes, parts_.longest_chunk_bytes, granted_.size())->count();
  }

  DispatcherParts parts_;
  std::vector<std::deque<ChunkName>> granted_;  // by channel: to be posted in this order
  size_t waiting_ = 0;                          // chunks in there
  std::vector<Deliveries> delivered_;
  ChunkName next_granted_{1, 0, 0};  // the next grant begins with it
};

}  // namespace tcpx
