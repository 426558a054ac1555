#include "lanes/pull/pulled_lane.h"

#include <cstring>

namespace tcpx {

bool PulledLane::offer(std::span<const HeldRange> ranges, std::vector<std::byte>& words) {
  const std::vector<WireSource> sources = sources_.of(ranges);
  const auto bytes = std::as_bytes(std::span(sources));
  words.assign(bytes.begin(), bytes.end());
  return !sources.empty();
}

bool PulledLane::beats_frames(std::span<const HeldRange> ranges) {
  return !ranges.empty() && !is_of_host(ranges.front().region(), memory_) && sources_.are_ready(ranges) &&
         !sources_.of(ranges).empty();
}

void PulledLane::lease(MemoryRegistry& registry, ConnId conn, const SlotId& slot) {
  if (!status_.is_ok() || leases_->has(slot)) return;
  auto range = registry.look_up(conn, slot, false);
  if (!range.is_ok()) range = registry.look_up(conn, slot, true);  // it may be for writing only
  if (!range.is_ok() || !*range) return;
  // Whether the peer may read it is found out by reading it, and this thread must not wait for memory that never answers.
  const Region& region = (*range)->region();
  if (is_of_host(region, memory_) && !(host_.is_read && has_ends(region))) return;
  if (!expect({&**range, 1})) return;
  const std::vector<WireSource> sources = sources_.of({&**range, 1}, kMaxLeaseSources);
  if (sources.empty()) return;
  const auto lease = registry.lease(conn, slot, leases_);
  if (!lease) return;
  auto [given, access] = *lease;
  // Without a pidfd this end would not see that the peer has ended in the middle of a write, and would wait for the write.
  if (!host_.same_process && !host_.process) {
    if (access == SlotAccess::kWrite) return;
    access = SlotAccess::kRead;
  }
  const WireLease head{.slot = slot, .word = given.word, .access = static_cast<uint64_t>(access)};
  std::vector<std::byte> words(sizeof head + std::as_bytes(std::span(sources)).size());
  std::memcpy(words.data(), &head, sizeof head);
  std::memcpy(words.data() + sizeof head, sources.data(), words.size() - sizeof head);
  stream_.send(talk(PullTalk::kLease, given.place, words));
}

// A block of a pool may be written long before the pool's ends. So a thread reads those, once, and a later call finds them there.
bool PulledLane::has_ends(const Region& region) {
  Look& look = looks_[static_cast<uint64_t>(region.id)];
  if (look.reads != nullptr && !look.reads->done()) {
    host_copier_.relieve();
    return false;
  }
  if (look.in_vain) return false;
  if (host_copier_.has_ends(region.data, region.bytes)) return true;
  if (look.reads == nullptr) {
    look.reads = host_copier_.read_ends(region.data, region.bytes);
  } else {
    look.in_vain = true;
  }
  return false;
}

}  // namespace tcpx
