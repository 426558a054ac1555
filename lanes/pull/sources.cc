#include "lanes/pull/sources.h"

#include <algorithm>
#include <utility>

#include "base/host_copier.h"
#include "base/log.h"

namespace tcpx {
std::vector<WireSource> Sources::of(std::span<const HeldRange> ranges) {
  std::vector<WireSource> sources;
  sources.reserve(ranges.size());
  const Region* region = nullptr;  // of the range before: often the same again
  const std::vector<Stretch>* stretches = nullptr;
  for (const HeldRange& range : ranges) {
    if (&range.region() != region) {
      region = &range.region();
      stretches = &known(*region).stretches;
    }
    const auto begin = reinterpret_cast<uintptr_t>(range.data);
    auto stretch = std::upper_bound(stretches->begin(), stretches->end(), begin,
                                    [](uintptr_t address, const Stretch& s) { return address < s.end; });
    for (uintptr_t at = begin; at < begin + range.bytes; ++stretch) {
      if (stretch == stretches->end() || sources.size() == kMaxWireRanges) return {};
      const uint64_t part = std::min(stretch->end, begin + range.bytes) - at;
      sources.push_back({.share = stretch->share, .address = at, .bytes = part});
      at += part;
    }
  }
  return sources;
}

void Sources::forget(MemoryId region) {
  const auto known = regions_.find(static_cast<uint64_t>(region));
  if (known == regions_.end()) return;
  give_back(known->second, region);
  regions_.erase(known);
}

bool Sources::is_mapped(MemoryId region) const {
  return std::any_of(unmapping_.begin(), unmapping_.end(), [region](const auto& entry) { return entry.second == region; });
}

Status Sources::on_unshared(const LaneFrame& frame) {
  if (frame.what == static_cast<uint64_t>(PullTalk::kUnshared) && unmapping_.erase(frame.number) > 0) return Status::ok();
  return unexpected(frame.kType, frame.number, "this end was not told to unmap that share");
}

// Each region is looked up once; again only if the peer had to take earlier descriptors first.
const Sources::Known& Sources::known(const Region& region) {
  Known& known = regions_[static_cast<uint64_t>(region.id)];
  const auto end = reinterpret_cast<uintptr_t>(region.data) + region.bytes;
  if (known.refused || (!known.stretches.empty() && known.stretches.back().end == end)) return known;
  Status told = tell(region, known);
  if (told.is_ok() || told.code() == Code::kExhausted) return known;
  give_back(known, region.id);
  known = {.stretches = {}, .refused = true};
  log(LogLevel::kInfo, told.to_string(), ": a peer on the same host does not copy this memory by itself");
  return known;
}

Status Sources::tell(const Region& region, Known& known) {
  constexpr const char* kTell = "share memory with a peer of this host";
  const auto begin = reinterpret_cast<uintptr_t>(region.data);
  const uintptr_t end = begin + region.bytes;
  if (is_of_host(region, memory_)) {
    // The kernel lets no other process read memory that a driver has mapped.
    if (!peer_.is_read || !can_be_read(region.data, region.bytes)) {
      known.refused = true;
    } else {
      known.stretches = {{.share = kHostMemory, .begin = begin, .end = end}};
    }
    return Status::ok();
  }
  if (region.access.copier != nullptr) return Status(Code::kUnsupported, kTell, "the endpoint's GPU does not reach it");
  // Within one process the other end would read it in place, with a kernel that faults if the application frees the memory after
  // a failure here.
  if (peer_.same_process) return Status(Code::kUnsupported, kTell, "GPU memory of one process is not shared");
  for (uintptr_t at = known.stretches.empty() ? begin : known.stretches.back().end; at < end;) {
    TCPX_ASSIGN_OR_RETURN(const Stretch shared, share(at));
    known.stretches.push_back({.share = shared.share, .begin = at, .end = std::min(shared.end, end)});
    at = known.stretches.back().end;
  }
  return Status::ok();
}

// Shares the allocation, or the chunk of a mapping, at that address.
Result<Sources::Stretch> Sources::share(uintptr_t address) {
  UniqueFd file;
  TCPX_ASSIGN_OR_RETURN(const MemoryShare memory, memory_.share(reinterpret_cast<const void*>(address), file));
  if (memory.base > address || memory.bytes <= address - memory.base)
    return Status(Code::kInternal, "share GPU memory", "the driver has answered for another address");
  const ShareKey key{.base = memory.base, .identity = memory.identity};
  const auto [known, is_new] = shares_.try_emplace(key);
  if (is_new) {
    Status passed = shares_.size() + unmapping_.size() > kMaxShares
                        ? Status(Code::kUnsupported, "share GPU memory", "too many allocations")
                    : file ? peer_.pass(file)
                           : Status::ok();
    if (!passed.is_ok()) {
      shares_.erase(known);
      return passed;
    }
    known->second.number = ++last_number_;
    numbers_.emplace(last_number_, key);
    stream_.send(talk(PullTalk::kShare, last_number_, std::as_bytes(std::span(&memory, 1))));
  }
  ++known->second.regions;
  return Stretch{.share = known->second.number, .begin = memory.base, .end = memory.base + memory.bytes};
}

void Sources::give_back(const Known& known, MemoryId region) {
  for (const Stretch& stretch : known.stretches) {
    const auto key = numbers_.find(stretch.share);
    if (key == numbers_.end()) continue;
    const auto share = shares_.find(key->second);
    if (--share->second.regions > 0) continue;
    unmapping_.emplace(stretch.share, region);
    stream_.send(talk(PullTalk::kUnshare, stretch.share));
    shares_.erase(share);
    numbers_.erase(key);
  }
}

}  // namespace tcpx
