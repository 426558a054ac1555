#include "tests/netns/lane.h"

#include <algorithm>
#include <utility>

namespace tcpx::netns {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Bytes that leave in `us` at the rate.
uint64_t bytes_in(double mbit, uint64_t us) {
  return static_cast<uint64_t>(mbit / 8 * static_cast<double>(us));
}

uint64_t most_held(const LaneOptions& options) {
  if (options.mbit <= 0) return options.queue_bytes > 0 ? options.queue_bytes : Lane::kQueueWithoutRate;
  const uint64_t queue = options.queue_bytes > 0 ? options.queue_bytes
                                                 : std::max(Lane::kShortestQueue, bytes_in(options.mbit, 2 * options.delay_us));
  return queue + bytes_in(options.mbit, std::max(options.delay_us, options.reroute_delay_us) + options.jitter_us);
}

}  // namespace

Lane::Lane(const LaneOptions& options, TimePoint began, uint64_t seed)
    : options_(options),
      cut_begins_(began + milliseconds(options.cut_after_ms)),
      cut_ends_(cut_begins_ + milliseconds(options.cut_ms)),
      rerouted_from_(options.reroute_after_ms > 0 ? began + milliseconds(options.reroute_after_ms) : TimePoint::max()),
      most_held_(most_held(options)),
      random_(seed),
      free_(began),
      last_(began) {}

bool Lane::happens(double chance) {
  return chance > 0 && std::uniform_real_distribution<double>()(random_) < chance;
}

void Lane::put(std::span<const std::byte> frame, uint64_t bytes, uint64_t longest, TimePoint now) {
  if (now >= cut_begins_ && now < cut_ends_) {
    ++counts_.cut;
    return;
  }
  if (options_.mtu_hole > 0 && longest > options_.mtu_hole) {
    ++counts_.vanished;
    return;
  }
  if (happens(options_.loss)) {
    ++counts_.lost;
    return;
  }
  if (held_ + bytes > most_held_) {
    ++counts_.dropped;
    return;
  }
  free_ = std::max(now, free_);
  if (options_.mbit > 0) free_ += Duration(static_cast<int64_t>(static_cast<double>(bytes) * 8e3 / options_.mbit));
  const bool rerouted = now >= rerouted_from_;
  if (rerouted && counts_.rerouted++ == 0) last_ = free_;  // the new way knows nothing of the order on the first one
  Duration on_the_way = microseconds(rerouted ? options_.reroute_delay_us : options_.delay_us);
  if (options_.jitter_us > 0) on_the_way += microseconds(random_() % (options_.jitter_us + 1));
  TimePoint arrives = std::max(free_ + on_the_way, last_);
  last_ = arrives;
  if (happens(options_.reorder)) {
    ++counts_.late;
    arrives += std::max<Duration>(microseconds(options_.delay_us / 4), microseconds(100));
  }
  const bool twice = happens(options_.duplicate) && held_ + 2 * bytes <= most_held_;
  if (twice) {
    ++counts_.twice;
    add({arrives, bytes, {frame.begin(), frame.end()}});
  }
  add({arrives, bytes, {frame.begin(), frame.end()}});
}

void Lane::add(Packet packet) {
  held_ += packet.bytes;
  // Nearly always the end.
  const auto later = [](TimePoint at, const Packet& one) { return at < one.arrives; };
  const bool last = packets_.empty() || packets_.back().arrives <= packet.arrives;
  const auto place = last ? packets_.end() : std::upper_bound(packets_.begin(), packets_.end(), packet.arrives, later);
  packets_.insert(place, std::move(packet));
}

std::optional<TimePoint> Lane::next() const {
  if (packets_.empty()) return std::nullopt;
  return packets_.front().arrives;
}

const std::vector<std::byte>* Lane::front(TimePoint now) const {
  return !packets_.empty() && packets_.front().arrives <= now ? &packets_.front().frame : nullptr;
}

void Lane::pop() {
  const uint64_t bytes = packets_.front().bytes;
  held_ -= bytes;
  ++counts_.packets;
  counts_.bytes += bytes;
  packets_.pop_front();
}

}  // namespace tcpx::netns
