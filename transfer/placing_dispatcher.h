// PlacingDispatcher: with several channels, decides which chunk goes over which channel.
//
// It posts each chunk on the channel that suits it best (chunk_router.h) and grants it to the other end, which posts each
// channel's chunks in the order of its grants. Usually the receiver places the chunks: its requests are posted before the bytes
// arrive, and it sees at once what a channel delivers. Where saving a round trip matters more, the sender does. It learns from
// the receiver what has been delivered (Delivered), and is never more than kMaxPlacedChunks ahead of that.
//
// With failover the receiver places the chunks, and three rules are added. It grants a transfer only after the sender has
// submitted it, because a chunk that is granted again must not queue behind one that waits for a submission. It grants the chunks
// that a lost channel had not delivered before all others. And it tells the sender of every transfer that is complete.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transfer/chunk_dispatcher.h"
#include "transfer/chunk_router.h"

namespace tcpx {

class PlacingDispatcher final : public ChunkDispatcher {
 public:
  explicit PlacingDispatcher(const DispatcherParts& parts)
      : parts_(parts), router_(parts.channels.size()), under_way_(parts.channels.size()) {}

  Result<bool> post(TimePoint now) override;
  Status finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint now) override;
  void lost(size_t channel) override;
  Status take(PeerMessage type, std::span<const std::byte> payload) override;
  bool waits_for_peer() const override;
  bool needs_peer() const override;
  std::string waiting() const override;

 private:
  /// Sets of channels (bit i: channel i) while the chunks of one call are placed.
  struct Room {
    uint32_t open = 0;     // channels that can take a chunk
    uint32_t refused = 0;  // channels that did not take a chunk although they had room
  };

  Result<bool> regrant_lost(TimePoint now);
  Status send_grant(const Transfer& transfer, uint64_t first, std::span<const uint8_t> channels);
  std::optional<size_t> place(Transfer& transfer, uint64_t chunk, Room& room, TimePoint now);
  uint64_t queued_behind(const Transfer& transfer) const;
  uint64_t end_of_grantable() const;
  Room room() const;
  Status take_delivered(const Delivered& delivered);

  DispatcherParts parts_;
  ChunkRouter router_;
  std::deque<ChunkName> lost_;      // chunks of failed channels
  uint64_t placing_ = 1;            // oldest transfer with chunks not yet granted
  uint64_t submitted_by_peer_ = 0;  // with failover: number of transfers that the sender has reported as submitted
  /// At the sender: the chunks of one channel that the receiver has not yet reported as delivered.
  struct UnderWay {
    std::deque<uint64_t> chunks;  // bytes of each
    uint64_t delivered = 0;       // number of chunks reported so far
  };
  std::vector<UnderWay> under_way_;
  uint64_t chunks_under_way_ = 0;
  TimePoint now_{};
};

}  // namespace tcpx
