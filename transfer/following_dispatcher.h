// FollowingDispatcher: the sending half of several channels, which posts what the receiver grants.
//
// Each channel's chunks are posted in the order in which they were granted, because the n-th send of a comm meets its n-th
// receive. With failover a transfer ends only when the peer has acknowledged all of it, because bytes that a plugin has taken may
// be lost with the channel.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transfer/chunk_dispatcher.h"
#include "transfer/peer_messages.h"

namespace tcpx {

class FollowingDispatcher final : public ChunkDispatcher {
 public:
  explicit FollowingDispatcher(const DispatcherParts& parts) : parts_(parts), granted_(parts.channels.size()) {}

  Status submitted(TransferId id) override;
  Result<bool> post(TimePoint now) override;
  Status finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint now) override;
  void lost(size_t channel) override;
  Status take(FrameType type, std::span<const std::byte> payload) override;
  bool waits_for_peer() const override { return true; }
  bool needs_peer() const override;
  std::string waiting_for(size_t channel) const override;

 private:
  /// Chunks granted on one channel. A receiver posts at most a window, so no more can wait.
  class GrantQueue {
   public:
    bool empty() const { return begin_ == end_; }
    uint64_t size() const { return end_ - begin_; }
    const ChunkName& front() const { return names_[begin_ % kQueueDepth]; }
    void pop() { ++begin_; }
    void clear() { begin_ = end_; }
    bool push(const ChunkName& name) {
      if (size() == kQueueDepth) return false;
      names_[end_++ % kQueueDepth] = name;
      return true;
    }

   private:
    std::array<ChunkName, kQueueDepth> names_{};
    uint64_t begin_ = 0, end_ = 0;
  };

  Status check(const ChunkName& name);
  void end_if_complete(Transfer& transfer);
  Status take_grant(const Grant& grant);
  Status take_regrant(const Regrant& regrant);
  Status take_received(uint64_t number);
  Status queue(size_t channel, const ChunkName& name);

  uint64_t count_chunks(uint64_t transfer_bytes) const {
    return ChunkPlan::make(transfer_bytes, parts_.chunk_bytes, parts_.longest_chunk_bytes, granted_.size())->count();
  }

  DispatcherParts parts_;
  std::vector<GrantQueue> granted_;  // by channel: to be posted in this order
  ChunkName next_granted_{1, 0, 0};  // the next grant begins with it
};

}  // namespace tcpx
