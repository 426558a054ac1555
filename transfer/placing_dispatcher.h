// PlacingDispatcher: the half of several channels that decides what goes where.
//
// It posts each chunk on the channel that suits it best (chunk_router.h) and grants it to the other end, which posts each channel's
// chunks in the order of its grants. This is the receiver, whose requests are there when bytes come and who sees at once what a
// channel delivers; or, where a round trip counts more, the sender, who hears of that from the receiver (Delivered) and does not
// run ahead of it by more than kMaxPlacedChunks.
//
// With failover, at the receiver, nothing is granted before the sender has submitted it, because a chunk granted
// anew must not end up behind one that waits for that; chunks a lost channel had not delivered are granted before all else; and
// the sender is told of every transfer that is complete.
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
  /// Channels, a bit each, as the chunks of one call are placed.
  struct Room {
    uint32_t open = 0;     // can take a chunk
    uint32_t refused = 0;  // did not, although it could
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
  uint64_t submitted_by_peer_ = 0;  // with failover: transfers that the sender has said it has
  /// At the sender, of a channel: what the receiver has not said to be delivered.
  struct UnderWay {
    std::deque<uint64_t> chunks;  // bytes of each
    uint64_t delivered = 0;       // chunks
  };
  std::vector<UnderWay> under_way_;
  uint64_t chunks_under_way_ = 0;
  TimePoint now_{};
};

}  // namespace tcpx
