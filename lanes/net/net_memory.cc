#include "lanes/net/net_memory.h"

#include <algorithm>
#include <utility>

namespace tcpx {

NetMemory::~NetMemory() {
  for (const auto& staging : staging_) give_back(*staging);
  if (scrap_ != nullptr) give_back(*scrap_);
}

// True if the ranges need no staging.
bool NetMemory::fits(std::span<const HeldRange> ranges, Packing wanted) {
  const auto is_taken = [this](const HeldRange& range) { return registered(range.region()) != nullptr; };
  return wanted != Packing::kPacked && std::all_of(ranges.begin(), ranges.end(), is_taken);
}

// False for what must be packed whatever the plugin would say.
bool NetMemory::may_register(const Region& region) const {
  return !region.access.staged && !(region.type == MemoryType::kHost && receives_ && parts_.steered);
}

bool NetMemory::can_list(std::span<const HeldRange> ranges) const {
  const Region& region = ranges.front().region();
  if (region.type != MemoryType::kHost || region.access.copier != nullptr || !may_register(region) || !connection_.takes_lists())
    return false;
  uint64_t bytes = 0;
  for (const HeldRange& range : ranges) bytes += range.bytes;
  return bytes / ranges.size() >= kListedRangeBytes;
}

std::optional<RegisteredMemory> NetMemory::list(std::span<const HeldRange> ranges) {
  if (!can_list(ranges)) return std::nullopt;
  const auto list = std::make_shared<RangeList>();
  for (const HeldRange& range : ranges) list->add(range.data, range.bytes);
  const auto registered = connection_.register_list(list);
  return registered.is_ok() ? std::optional(*registered) : std::nullopt;
}

bool NetMemory::can_prepare(std::span<const HeldRange> ranges, Packing wanted) {
  if (ranges.empty() || fits(ranges, wanted) || can_list(ranges)) return true;
  const Region& region = ranges.front().region();
  const SegmentCopier& copier = copier_for(region);
  return find(region.type, copier) != nullptr || can_make(region.type, copier);
}

Result<Packing> NetMemory::prepare(std::span<const HeldRange> ranges, Packing wanted) {
  if (fits(ranges, wanted)) return wanted;
  if (can_list(ranges)) return Packing::kPacked;
  const auto staging = staging_for(ranges.front().region());
  if (!staging.is_ok()) return staging.status();
  return Packing::kPacked;
}

SegmentCopier& NetMemory::copier_for(const Region& region) const {
  if (region.access.copier != nullptr) return *region.access.copier;
  return region.type == MemoryType::kCuda ? parts_.device_copier : parts_.host_copier;
}

StagingArea* NetMemory::find(MemoryType type, const SegmentCopier& copier) const {
  const auto serves = [&](const auto& staging) { return staging->type == type && staging->copier == &copier; };
  const auto known = std::find_if(staging_.begin(), staging_.end(), serves);
  return known == staging_.end() ? nullptr : known->get();
}

Result<StagingArea*> NetMemory::staging_for(const Region& region) {
  SegmentCopier& copier = copier_for(region);
  if (StagingArea* const known = find(region.type, copier)) return known;
  if (!can_make(region.type, copier)) return nullptr;
  TCPX_ASSIGN_OR_RETURN(auto fresh, make_staging(region.type, copier));
  return staging_.emplace_back(std::move(fresh)).get();
}

NetMemory::Kinds NetMemory::kinds_for(MemoryType type, const SegmentCopier& copier) const {
  const bool reached = type == MemoryType::kCuda && &copier == &parts_.device_copier;
  const bool fetches = !reached && receives_ && parts_.steered;
  if (reached || fetches) return {StagingKind::kDevice, fetches};
  return {type == MemoryType::kHost ? StagingKind::kHost : StagingKind::kMapped};
}

bool NetMemory::can_make(MemoryType type, const SegmentCopier& copier) const {
  const auto [kind, fetches] = kinds_for(type, copier);
  return parts_.staging.is_ready(kind) && (!fetches || parts_.staging.is_ready(StagingKind::kMapped));
}

// Call when `can_make`.
Result<std::unique_ptr<StagingArea>> NetMemory::make_staging(MemoryType type, SegmentCopier& copier) {
  const auto [kind, fetches] = kinds_for(type, copier);
  auto fresh = std::make_unique<StagingArea>();
  fresh->kind = kind;
  TCPX_ASSIGN_OR_RETURN(fresh->buffer, parts_.staging.take(fresh->kind));
  const auto memory = connection_.register_memory(fresh->buffer.device(), fresh->buffer.size(),
                                                  fresh->kind == StagingKind::kDevice ? MemoryType::kCuda : MemoryType::kHost);
  if (!memory.is_ok()) {
    give_back(*fresh);
    return memory.status();
  }
  fresh->registered = *memory;
  if (fetches) {
    auto mapped = parts_.staging.take(StagingKind::kMapped);
    if (!mapped.is_ok()) {
      (void)connection_.deregister_memory(fresh->registered);
      give_back(*fresh);
      return mapped.status();
    }
    fresh->mapped = std::move(*mapped);
  }
  fresh->type = type;
  fresh->copier = &copier;
  for (uint32_t slot = kStagingSlots; slot-- > 0;) fresh->free.push_back(slot);
  return fresh;
}

void NetMemory::give_back(StagingArea& staging) {
  parts_.staging.give_back(staging.kind, std::move(staging.buffer));
  if (staging.mapped) parts_.staging.give_back(StagingKind::kMapped, std::move(staging.mapped));
}

Result<const RegisteredMemory*> NetMemory::scrap() {
  if (scrap_ == nullptr) {
    if (!can_make(MemoryType::kHost, parts_.host_copier)) return nullptr;
    TCPX_ASSIGN_OR_RETURN(scrap_, make_staging(MemoryType::kHost, parts_.host_copier));
  }
  return &scrap_->registered;
}

const RegisteredMemory* NetMemory::registered(const Region& region) {
  if (!may_register(region)) return nullptr;
  const auto [known, is_new] = registrations_.try_emplace(static_cast<uint64_t>(region.id));
  if (is_new) {
    const auto memory = connection_.register_memory(region.data, region.bytes, region.type);
    if (memory.is_ok()) known->second = *memory;
  }
  return known->second ? &*known->second : nullptr;
}

void NetMemory::forget(MemoryId region) {
  const auto known = registrations_.find(static_cast<uint64_t>(region));
  if (known == registrations_.end()) return;
  if (known->second) (void)connection_.deregister_memory(*known->second);  // logged where it was first seen
  registrations_.erase(known);
}

}  // namespace tcpx
