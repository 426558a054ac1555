// ChunkRouter: decides which channel the next chunk goes over. It computes with what it has seen of each channel, and has no
// clock of its own.
//
// A chunk goes to the channel that is expected to deliver it first. The expected time is the bytes outstanding on the channel
// plus the chunk, divided by the rate at which the channel has been delivering. A channel without room is passed over for the
// next best, because a channel that idles while work is left is worse than a chunk out of order. But no channel takes a chunk if
// the others would deliver all the rest of the transfer sooner: near the end, waiting for a fast channel beats filling a slow
// one. And a channel that has kBusyChunks takes no more while its queue lasts longer than those of the channels without room: it is
// asked again before it is idle, nobody else can deliver what it holds, and with a long queue a small error of its rate is a long
// wait at the end.
//
// Rates. A channel's rate is the bytes that it has delivered divided by the time during which it had chunks outstanding, in the
// recent past. Both sums are halved whenever the time exceeds kMemory and the sums cover kLeastDeliveries or more; the second
// condition is for slow channels, which deliver less than one chunk in kMemory. Time in which no channel delivers anything says
// nothing about which of them is faster (the peer was not sending), so time beyond kPause between two deliveries is not counted.
//
// An unknown channel counts as fast as the mean of the others and gets at most kFirstChunks, so that a slow one does not begin
// with a full window. The first chunks of a channel say little about it (new TCP connections, untouched memory), so kColdChunks
// of them do not count. A channel becomes unknown again when it has had nothing to do for kForget, and for as long as
// kForgetChunks of its own would take, while others delivered. Otherwise one bad moment would keep it idle for good, because a
// channel that looks slow is given no chunks.
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
  static constexpr uint32_t kBusyChunks = 2;
  static constexpr Duration kForget = std::chrono::milliseconds(50);
  static constexpr double kForgetChunks = 8;

  /// @param channels 1 ... kMaxChannels
  explicit ChunkRouter(size_t channels) : channels_(channels) {}

  /// Chooses the channel for a chunk.
  /// @param room bit i: channel i can take a chunk now; a closed channel never has room
  /// @param bytes size of the chunk
  /// @param left bytes left of its transfer and of those after it, this chunk included
  /// @param refused bit i: channel i did not take a chunk although it had room, so no chunk can be left to it
  /// @return nullopt: wait
  std::optional<size_t> pick(uint32_t room, uint64_t bytes, uint64_t left, uint32_t refused = 0) const;

  void posted(size_t channel, uint64_t bytes, TimePoint now);
  void delivered(size_t channel, uint64_t bytes, TimePoint now);
  /// Tells the router that the channel has failed; its chunks are no longer outstanding.
  void closed(size_t channel);

  /// The channel's rate in bytes per second; 0 when nothing has been delivered yet.
  double rate(size_t channel) const;
  uint64_t outstanding(size_t channel) const { return loads_[channel].outstanding; }

 private:
  struct Load {
    uint64_t outstanding = 0;
    uint32_t chunks = 0;          // outstanding
    uint32_t cold = kColdChunks;  // deliveries that do not count yet
    bool open = true;
    double bytes = 0, deliveries = 0, seconds = 0;  // in the recent past
    TimePoint counted_to{};                         // `seconds` includes the time up to here
  };
  void count_time(Load& load, TimePoint now);
  void forget_idle(TimePoint now);

  size_t channels_;
  std::array<Load, kMaxChannels> loads_{};
  TimePoint last_delivery_{};  // on any channel
};

}  // namespace tcpx
