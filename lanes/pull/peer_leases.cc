#include "lanes/pull/peer_leases.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace tcpx {

Status PeerLeases::on_lease(const LaneFrame& frame) {
  Lease lease;
  if (frame.number >= LeaseWords::kMost || frame.words.size() <= sizeof lease.of)
    return unexpected(frame.kType, frame.number, concat("a lease of ", frame.words.size(), " bytes"));
  std::memcpy(&lease.of, frame.words.data(), sizeof lease.of);
  const auto words = frame.words.subspan(sizeof lease.of);
  TCPX_RETURN_IF_ERROR(bytes_of_sources(words).status());
  const auto place = static_cast<uint32_t>(frame.number);
  if (place >= leases_.size()) leases_.resize(place + 1);
  drop(place);
  if (const auto other = places_.find(lease.of.slot); other != places_.end()) drop(other->second);
  const WireArray<WireSource> sources(words);
  if (parts_ + sources.size() > kMostParts) return Status::ok();
  uint64_t end = 0;
  for (size_t i = 0; i < sources.size(); ++i) lease.parts.emplace_back(end += sources[i].bytes, sources[i]);
  places_.emplace(lease.of.slot, place);
  parts_ += lease.parts.size();
  leases_[place] = std::move(lease);
  return Status::ok();
}

std::optional<PeerLeases::Found> PeerLeases::find(std::span<const WireRange> slots, bool writes) {
  if (places_.empty()) return std::nullopt;
  Found found;
  const Lease* lease = nullptr;
  Row* row = nullptr;  // of the bytes before, if they are of this lease
  for (const WireRange& range : slots) {
    if (range.bytes == 0) continue;
    if (lease == nullptr || range.slot != lease->of.slot) {
      const auto place = places_.find(range.slot);
      if (place == places_.end()) return std::nullopt;
      lease = &leases_[place->second];
      if (peer_.peer_leases().words[place->second].load() != lease->of.word) {
        drop(place->second);
        return std::nullopt;
      }
      if (lease->of.access == static_cast<uint64_t>(writes ? SlotAccess::kRead : SlotAccess::kWrite)) return std::nullopt;
      found.leases.emplace_back(place->second, lease->of.word);
      row = nullptr;
    }
    const uint64_t size = lease->parts.back().first;
    if (range.offset > size || range.bytes > size - range.offset) return std::nullopt;
    for (uint64_t at = range.offset, end = range.offset + range.bytes; at < end;) {
      if (row == nullptr || at - row->begin >= row->part.bytes) {  // also true of what is before the part
        const auto part = std::upper_bound(lease->parts.begin(), lease->parts.end(), at,
                                           [](uint64_t offset, const auto& one) { return offset < one.first; });
        row = &found.rows.emplace_back(Row{.part = part->second, .begin = part->first - part->second.bytes});
      }
      const uint64_t bytes = std::min(end - at, row->begin + row->part.bytes - at);
      row->bytes += bytes;
      at += bytes;
    }
  }
  return found;
}

bool PeerLeases::last(const Used& leases) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return std::all_of(leases.begin(), leases.end(),
                     [&](const auto& lease) { return peer_.peer_leases().words[lease.first].load() == lease.second; });
}

Touching PeerLeases::touch(const Used& leases) const {
  std::vector<std::atomic<uint32_t>*> counts;
  counts.reserve(leases.size());
  for (const auto& [place, word] : leases) counts.push_back(&peer_.peer_leases().writing[place]);
  return Touching(std::move(counts));
}

void PeerLeases::drop(const Used& leases) {
  for (const auto& [place, word] : leases) {
    if (leases_[place].of.word == word) drop(place);
  }
}

void PeerLeases::drop(uint32_t place) {
  Lease& lease = leases_[place];
  if (lease.parts.empty()) return;
  parts_ -= lease.parts.size();
  places_.erase(lease.of.slot);
  lease = {};
}

void PeerLeases::clear() {
  leases_.clear();
  places_.clear();
  parts_ = 0;
}

}  // namespace tcpx
