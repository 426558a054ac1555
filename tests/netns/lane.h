// One direction of a network with distance: which packets arrive, and when. It moves no bytes by itself and asks no clock, so that tests
// play it with times of their own; `link.cc` feeds it from one device and empties it into another.
//
// A packet leaves when those before it have left (rate), and arrives `delay` later. What is held, waiting or on its way, is bounded:
// the queue, and what the wire holds at this rate. The dice are seeded: the same packets at the same times have the same fate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "base/clock.h"

namespace tcpx::netns {

struct LaneOptions {
  uint64_t delay_us = 0;
  uint64_t jitter_us = 0;  // up to so much more for each packet, which overtakes none
  double mbit = 0;         // 0: as fast as packets come
  double loss = 0;         // chances, 0 to 1
  double reorder = 0;      // of a packet that is held back, so that later ones overtake it
  double duplicate = 0;
  uint64_t queue_bytes = 0;               // 0: what the wire holds in both directions, at least kShortestQueue
  uint64_t mtu_hole = 0;                  // longer packets vanish; 0: none
  uint64_t cut_after_ms = 0, cut_ms = 0;  // since the beginning; 0 ms: no cut
  uint64_t reroute_after_ms = 0;          // packets take another way from then on; 0: never
  uint64_t reroute_delay_us = 0;          // that way's delay; a shorter one overtakes what is still on the first
  uint64_t seed = 1;
};

class Lane {
 public:
  static constexpr uint64_t kShortestQueue = 256 * 1024, kQueueWithoutRate = 64 << 20;

  /// What became of the packets so far.
  struct Counts {
    uint64_t packets = 0, bytes = 0;  // arrived, duplicates included
    uint64_t lost = 0;                // by chance
    uint64_t dropped = 0;             // by the queue
    uint64_t cut = 0, vanished = 0;   // by the cut; by the hole
    uint64_t late = 0, twice = 0;
    uint64_t rerouted = 0;
  };

  Lane(const LaneOptions& options, TimePoint began, uint64_t seed);

  /// A packet comes. @param frame what `take` gives back, with whatever stands before the packet @param bytes of it that count
  /// @param longest longest packet on the wire: shorter than `bytes` where the kernel leaves the cutting to a device
  void put(std::span<const std::byte> frame, uint64_t bytes, uint64_t longest, TimePoint now);
  /// When the next packet arrives; empty: none is on its way.
  std::optional<TimePoint> next() const;
  /// The packet that has arrived by now, until `pop`; null: none has.
  const std::vector<std::byte>* front(TimePoint now) const;
  void pop();

  const Counts& counts() const { return counts_; }

 private:
  struct Packet {
    TimePoint arrives;
    uint64_t bytes;
    std::vector<std::byte> frame;
  };

  bool happens(double chance);
  void add(Packet packet);

  const LaneOptions options_;
  const TimePoint cut_begins_, cut_ends_, rerouted_from_;
  uint64_t most_held_ = 0;
  std::mt19937_64 random_;
  std::deque<Packet> packets_;  // by arrival
  TimePoint free_, last_;       // when the sender is free; when the last packet that keeps the order arrives
  uint64_t held_ = 0;
  Counts counts_;
};

}  // namespace tcpx::netns
