// ChunkRouter: which channel the next chunk goes over. Arithmetic over what has been seen of each channel; no clock of its own.
//
// A chunk goes to the channel that is expected to deliver it first: the bytes outstanding there, and the chunk, over the rate at
// which that channel has been delivering. One that has no room is passed over for the next best, because a channel that idles
// while work is left is worse than a chunk out of order. But no channel takes a chunk that it would deliver later than the others
// take for all that is left of the transfer: near the end, waiting for a fast channel beats filling a slow one.
//
// Rates. A channel's rate is bytes delivered over time spent with something outstanding, of the recent past: both sums are halved
// whenever the time exceeds kMemory and they stand for kLeastDeliveries or more, because a slow channel delivers less than one
// chunk in kMemory. Time in which no channel delivered anything says nothing about their order (the peer was not sending), so
// time beyond kPause between two deliveries is not counted. A channel of which nothing is known counts as fast as the
// mean of the others and gets at most kFirstChunks, so that one that turns out to be slow does not begin with a full window. What
// a channel delivers first says little about it (new TCP connections, untouched memory), so kColdChunks do not count; and a
// channel that has had nothing to do for kForget, and for the time of kForgetChunks of its own, while others
// delivered, is unknown again: otherwise one bad moment would keep it idle for good, because nobody asks a channel that looks
// slow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "transfer/peer_messages.h"

namespace tcpx {

class ChunkRouter {
 public:
  static constexpr Duration kMemory = std::chrono::milliseconds(20);
  static constexpr double kLeastDeliveries = 8;
  static constexpr Duration kPause = std::chrono::milliseconds(5);
  static constexpr uint32_t kFirstChunks = 4;
  static constexpr uint32_t kColdChunks = 1;
  static constexpr Duration kForget = std::chrono::milliseconds(50);
  static constexpr double kForgetChunks = 8;

  /// @param channels 1 ... kMaxChannels
  explicit ChunkRouter(size_t channels) : channels_(channels) {}

  /// @param room bit i: channel i can take a chunk now; a closed one never has room
  /// @param refused bit i: channel i did not take a chunk although it had room, so that none can be left to it
  /// @param bytes of the chunk; @param left of its transfer and of those behind it, this chunk included
  /// @return nullopt: wait
  std::optional<size_t> pick(uint32_t room, uint64_t bytes, uint64_t left, uint32_t refused = 0) const;

  void posted(size_t channel, uint64_t bytes, TimePoint now);
  void delivered(size_t channel, uint64_t bytes, TimePoint now);
  /// The channel has failed; its chunks are no longer outstanding.
  void closed(size_t channel);

  /// Bytes per second; 0 when nothing has been delivered yet.
  double rate(size_t channel) const;
  uint64_t outstanding(size_t channel) const { return loads_[channel].outstanding; }

 private:
  struct Load {
    uint64_t outstanding = 0;
    uint32_t chunks = 0;          // outstanding
    uint32_t cold = kColdChunks;  // deliveries that do not count yet
    bool open = true;
    double bytes = 0, deliveries = 0, seconds = 0;  // of the recent past
    TimePoint counted_to{};                         // time up to here is in `seconds`
  };
  void count_time(Load& load, TimePoint now);
  void forget_idle(TimePoint now);

  size_t channels_;
  std::array<Load, kMaxChannels> loads_{};
  TimePoint last_delivery_{};  // on any channel
};

}  // namespace tcpx
