#include "transfer/chunk_router.h"

#include <algorithm>
#include <limits>

namespace tcpx {

std::optional<size_t> ChunkRouter::pick(uint32_t room, uint64_t bytes, uint64_t left, uint32_t refused) const {
  const auto counts = [&](size_t i) { return lanes_[i].open && (refused >> i & 1) == 0; };
  std::array<double, kMaxChannels> rates{};
  double known = 0;
  size_t known_count = 0;
  for (size_t i = 0; i < channels_; ++i) {
    if (!counts(i)) continue;
    rates[i] = rate(i);
    known += rates[i];
    known_count += rates[i] > 0 ? 1 : 0;
  }
  // Where nothing is known the unit does not matter, as long as it is the same for all.
  const double mean = known_count > 0 ? known / static_cast<double>(known_count) : 1.0;

  constexpr double kNever = std::numeric_limits<double>::infinity();
  double total_rate = 0, total_outstanding = 0;
  std::array<double, kMaxChannels> ends{};         // when each channel would have delivered the chunk
  double first_end = kNever, second_end = kNever;  // the two earliest, with room or without
  for (size_t i = 0; i < channels_; ++i) {
    if (!counts(i)) continue;
    if (rates[i] <= 0) rates[i] = mean;
    total_rate += rates[i];
    total_outstanding += static_cast<double>(lanes_[i].outstanding);
    ends[i] = static_cast<double>(lanes_[i].outstanding + bytes) / rates[i];
    second_end = std::min(second_end, std::max(first_end, ends[i]));
    first_end = std::min(first_end, ends[i]);
  }

  std::optional<size_t> best;
  for (size_t i = 0; i < channels_; ++i) {
    const Lane& lane = lanes_[i];
    if (!counts(i) || (room >> i & 1) == 0 || (best && ends[i] >= ends[*best])) continue;
    if (lane.bytes == 0 && lane.chunks >= kFirstChunks) continue;
    // When the others would be done with everything, this chunk included: not before the best of them has delivered this chunk.
    const double others_rate = total_rate - rates[i];
    const double others_work = total_outstanding - static_cast<double>(lane.outstanding) + static_cast<double>(left);
    const double others_next = ends[i] == first_end ? second_end : first_end;
    if (others_rate > 0 && ends[i] > std::max(others_work / others_rate, others_next)) continue;
    best = i;
  }
  return best;
}

// Adds the time since the last look, as far as it says something, to what the channel had work for.
void ChunkRouter::count_time(Lane& lane, TimePoint now) {
  if (lane.outstanding > 0) {
    const TimePoint from = std::max(lane.counted_to, last_delivery_);
    const Duration quiet = now - from;
    // Nothing came on any channel for long: the sender had nothing to send.
    const Duration lost = quiet > kPause ? quiet - kPause : Duration::zero();
    lane.seconds += std::chrono::duration<double>(now - lane.counted_to - lost).count();
    if (lane.seconds > std::chrono::duration<double>(kMemory).count() && lane.deliveries >= kLeastDeliveries) {
      lane.seconds /= 2;
      lane.deliveries /= 2;
      lane.bytes /= 2;
    }
  }
  lane.counted_to = now;
}

void ChunkRouter::posted(size_t channel, uint64_t bytes, TimePoint now) {
  Lane& lane = lanes_[channel];
  count_time(lane, now);
  lane.outstanding += bytes;
  ++lane.chunks;
}

void ChunkRouter::delivered(size_t channel, uint64_t bytes, TimePoint now) {
  Lane& lane = lanes_[channel];
  count_time(lane, now);
  last_delivery_ = now;
  lane.outstanding -= std::min(lane.outstanding, bytes);
  lane.chunks -= lane.chunks > 0 ? 1 : 0;
  if (lane.cold > 0) {
    --lane.cold;
    lane.seconds = 0;
  } else {
    lane.bytes += static_cast<double>(bytes);
    ++lane.deliveries;
  }
  forget_idle(now);
}

void ChunkRouter::forget_idle(TimePoint now) {
  for (size_t i = 0; i < channels_; ++i) {
    Lane& lane = lanes_[i];
    if (lane.bytes <= 0 || lane.outstanding > 0 || now - lane.counted_to < kForget) continue;
    const double own_seconds = kForgetChunks * lane.seconds / lane.deliveries;
    if (std::chrono::duration<double>(now - lane.counted_to).count() < own_seconds) continue;
    lane.bytes = lane.deliveries = lane.seconds = 0;
  }
}

void ChunkRouter::closed(size_t channel) {
  lanes_[channel] = {};
  lanes_[channel].open = false;
}

double ChunkRouter::rate(size_t channel) const {
  const Lane& lane = lanes_[channel];
  // The first delivery may be seen in the very moment of the post.
  return lane.bytes <= 0 ? 0 : lane.bytes / std::max(lane.seconds, 1e-6);
}

}  // namespace tcpx
