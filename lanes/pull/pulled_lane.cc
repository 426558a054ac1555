#include "lanes/pull/pulled_lane.h"

#include <cstring>

#include "lanes/pull/joint_slice.h"

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
  registry_ = &registry;
  conn_ = conn;
  const WireLease head{.slot = slot, .word = given.word, .access = static_cast<uint64_t>(access)};
  std::vector<std::byte> words(sizeof head + std::as_bytes(std::span(sources)).size());
  std::memcpy(words.data(), &head, sizeof head);
  std::memcpy(words.data() + sizeof head, sources.data(), words.size() - sizeof head);
  stream_.send(talk(PullTalk::kLease, given.place, words));
}

// It takes no notice of a slot that is not leased any more: the peer copies alone, or asks.
Status PulledLane::on_join(const LaneFrame& frame) {
  WireJoint asked{};
  if (frame.words.size() != sizeof asked)
    return unexpected(frame.kType, frame.number, concat("a joint copy of ", frame.words.size(), " bytes of words"));
  std::memcpy(&asked, frame.words.data(), sizeof asked);
  uint64_t end = 0;
  if (asked.bytes == 0 || asked.bytes > JointCopy::kMostBytes || asked.writes > 1 || frame.number == 0 ||
      frame.number > UINT32_MAX || __builtin_add_overflow(asked.address, asked.bytes, &end))
    return unexpected(frame.kType, frame.number, concat("a joint copy of ", asked.bytes, " bytes at ", Hex{asked.address}));
  help_.reset();
  if (!status_.is_ok() || !host_.reads_memory || registry_ == nullptr || !leases_->has(asked.slot)) return Status::ok();
  auto slot = registry_->look_up(conn_, asked.slot, asked.writes == 1);
  if (!slot.is_ok() || !*slot || !is_of_host((*slot)->region(), memory_)) return Status::ok();
  HeldRange& range = **slot;
  if (asked.offset > range.bytes || asked.bytes > range.bytes - asked.offset)
    return unexpected(frame.kType, frame.number,
                      concat("a joint copy at ", asked.offset, " of a slot of ", range.bytes, " bytes"));
  std::byte* const here = range.data + asked.offset;
  auto* const there = reinterpret_cast<std::byte*>(asked.address);
  const CopySegment all = asked.writes == 1 ? CopySegment{here, there, asked.bytes} : CopySegment{there, here, asked.bytes};
  help_.emplace(
      Help{std::move(range), asked.writes == 1, JointCopy(host_.peer_joint(), static_cast<uint32_t>(frame.number), true, all)});
  return Status::ok();
}

// Copies a few slices, unless the peer has given up the connection: it may use its memory for something else by now.
// @return true when slices have been copied
bool PulledLane::help() {
  if (help_ && host_.peer_alive().load() != 1) help_.reset();
  for (size_t i = 0; help_ && i < JointCopy::kSlicesAtOnce; ++i) {
    const auto slice = help_->joint.take();
    if (!slice) {
      help_.reset();
      return i > 0;
    }
    const auto copy = copy_slice(host_copier_, host_, *slice, !help_->writes);
    const bool copied = copy != nullptr && copy->is_whole();
    help_->joint.end_slice(copied);
    if (!copied) help_.reset();
  }
  return help_.has_value();
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
