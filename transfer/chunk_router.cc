#include "transfer/chunk_router.h"

#include <algorithm>
#include <limits>

namespace tcpx {

std::optional<size_t> ChunkRouter::pick(uint32_t room, uint64_t bytes, uint64_t left, uint32_t refused) const {
  const auto counts = [&](size_t i) { return loads_[i].open && (refused >> i & 1) == 0; };
  std::array<double, kMaxChannels> rates{};
  double known = 0;
  size_t known_count = 0;
  for (size_t i = 0; i < channels_; ++i) {
    if (!counts(i)) continue;
    rates[i] = rate(i);
    known += rates[i];
    known_count += rates[i] > 0 ? 1 : 0;
  }
  // When no rate is known, any value will do as long as it is the same for all channels.
  const double mean = known_count > 0 ? known / static_cast<double>(known_count) : 1.0;

  // Until the channel would have delivered what it has, and so much more.
  const auto seconds_for = [&](size_t i, uint64_t more) { return static_cast<double>(loads_[i].outstanding + more) / rates[i]; };

  constexpr double kNever = std::numeric_limits<double>::infinity();
  double total_rate = 0, total_outstanding = 0;
  double longest_queue = 0;                        // of the channels without room
  std::array<double, kMaxChannels> ends{};         // when each channel would have delivered the chunk
  double first_end = kNever, second_end = kNever;  // the two earliest, whether or not the channels have room
  for (size_t i = 0; i < channels_; ++i) {
    if (!counts(i)) continue;
    if (rates[i] <= 0) rates[i] = mean;
    total_rate += rates[i];
    total_outstanding += static_cast<double>(loads_[i].outstanding);
    ends[i] = seconds_for(i, bytes);
    if ((room >> i & 1) == 0) longest_queue = std::max(longest_queue, seconds_for(i, 0));
    second_end = std::min(second_end, std::max(first_end, ends[i]));
    first_end = std::min(first_end, ends[i]);
  }

  std::optional<size_t> best;
  for (size_t i = 0; i < channels_; ++i) {
    const Load& load = loads_[i];
    if (!counts(i) || (room >> i & 1) == 0 || (best && ends[i] >= ends[*best])) continue;
    if (load.bytes == 0 && load.chunks >= kFirstChunks) continue;
    // It will be asked again before it has nothing left to do.
    if (load.chunks >= kBusyChunks && ends[i] > first_end && seconds_for(i, 0) > longest_queue) continue;
    // The others would be done with everything, this chunk included, no earlier than the best of them has delivered this chunk.
    const double others_rate = total_rate - rates[i];
    const double others_work = total_outstanding - static_cast<double>(load.outstanding) + static_cast<double>(left);
    const double others_next = ends[i] == first_end ? second_end : first_end;
    if (others_rate > 0 && ends[i] > std::max(others_work / others_rate, others_next)) continue;
    best = i;
  }
  return best;
}

// Adds the time since the last call to the time during which the channel had work, as far as that time is significant.
void ChunkRouter::count_time(Load& load, TimePoint now) {
  if (load.outstanding > 0) {
    const TimePoint from = std::max(load.counted_to, last_delivery_);
    const Duration quiet = now - from;
    // When nothing came on any channel for long, the sender had nothing to send.
    const Duration lost = quiet > kPause ? quiet - kPause : Duration::zero();
    load.seconds += std::chrono::duration<double>(now - load.counted_to - lost).count();
    if (load.seconds > std::chrono::duration<double>(kMemory).count() && load.deliveries >= kLeastDeliveries) {
      load.seconds /= 2;
      load.deliveries /= 2;
      load.bytes /= 2;
    }
  }
  load.counted_to = now;
}

void ChunkRouter::posted(size_t channel, uint64_t bytes, TimePoint now) {
  Load& load = loads_[channel];
  count_time(load, now);
  load.outstanding += bytes;
  ++load.chunks;
}

void ChunkRouter::delivered(size_t channel, uint64_t bytes, TimePoint now) {
  Load& load = loads_[channel];
  count_time(load, now);
  last_delivery_ = now;
  load.outstanding -= std::min(load.outstanding, bytes);
  load.chunks -= load.chunks > 0 ? 1 : 0;
  if (load.cold > 0) {
    --load.cold;
    load.seconds = 0;
  } else {
    load.bytes += static_cast<double>(bytes);
    ++load.deliveries;
  }
  forget_idle(now);
}

void ChunkRouter::forget_idle(TimePoint now) {
  for (size_t i = 0; i < channels_; ++i) {
    Load& load = loads_[i];
    if (load.bytes <= 0 || load.outstanding > 0 || now - load.counted_to < kForget) continue;
    const double own_seconds = kForgetChunks * load.seconds / load.deliveries;
    if (std::chrono::duration<double>(now - load.counted_to).count() < own_seconds) continue;
    load.bytes = load.deliveries = load.seconds = 0;
  }
}

void ChunkRouter::closed(size_t channel) {
  loads_[channel] = {};
  loads_[channel].open = false;
}

double ChunkRouter::rate(size_t channel) const {
  const Load& load = loads_[channel];
  // `seconds` may be 0: the first delivery may be seen at the same moment as the post.
  return load.bytes <= 0 ? 0 : load.bytes / std::max(load.seconds, 1e-6);
}

}  // namespace tcpx
