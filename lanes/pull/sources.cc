#include "lanes/pull/sources.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/host_copier.h"
#include "base/log.h"

namespace tcpx {
namespace {

uint64_t bytes_of(std::span<const HeldRange> ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), uint64_t{0},
                         [](uint64_t sum, const HeldRange& r) { return sum + r.bytes; });
}

}  // namespace

std::vector<WireSource> Sources::of(std::span<const HeldRange> ranges) {
  std::vector<WireSource> sources;
  if (peer_ == nullptr || ranges.size() > kMaxWireSources) return sources;
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
      if (stretch == stretches->end() || sources.size() == kMaxWireSources) return {};
      if (stretch->share == kHiddenMemory) return {{.share = kHiddenMemory, .address = 0, .bytes = bytes_of(ranges)}};
      const uint64_t part = std::min(stretch->end, begin + range.bytes) - at;
      sources.push_back({.share = stretch->share, .address = at, .bytes = part});
      at += part;
    }
  }
  return sources;
}

std::vector<uint64_t> Sources::forget(MemoryId region) {
  const auto known = regions_.find(static_cast<uint64_t>(region));
  if (known == regions_.end()) return {};
  auto told = give_back(known->second);
  regions_.erase(known);
  return told;
}

Status Sources::on(const UnshareFrame& frame) {
  if (unmapping_.erase(frame.share) > 0) return Status::ok();
  return unexpected(frame.kType, frame.share, "it was not told to unmap that share");
}

// Each region is looked up once; again only if the peer had to take earlier descriptors first.
const Sources::Known& Sources::known(const Region& region) {
  Known& known = regions_[static_cast<uint64_t>(region.id)];
  const auto end = reinterpret_cast<uintptr_t>(region.data) + region.bytes;
  if (known.refused || (!known.stretches.empty() && known.stretches.back().end == end)) return known;
  Status told = tell(region, known);
  if (told.is_ok() || told.code() == Code::kExhausted) return known;
  (void)give_back(known);
  if (region.access.copier == nullptr && ring_reaches_gpu_()) {
    const auto begin = reinterpret_cast<uintptr_t>(region.data);
    known.stretches = {{.share = kHiddenMemory, .begin = begin, .end = end}};
    log(LogLevel::kInfo, told.to_string(), ": this memory goes to a peer on the same host through shared host memory");
    return known;
  }
  known = {.stretches = {}, .refused = true};
  log(LogLevel::kInfo, told.to_string(), ": this memory goes over the network, even to a peer on the same host");
  return known;
}

Status Sources::tell(const Region& region, Known& known) {
  constexpr const char* kTell = "share memory with a peer of this host";
  const auto begin = reinterpret_cast<uintptr_t>(region.data);
  const uintptr_t end = begin + region.bytes;
  if (is_of_host(region, memory_)) {
    // The kernel lets no other process read memory that a driver has mapped.
    const bool read = peer_->is_read && can_be_read(region.data, region.bytes);
    known.stretches = {{.share = read ? kHostMemory : kHiddenMemory, .begin = begin, .end = end}};
    return Status::ok();
  }
  if (region.access.copier != nullptr) return Status(Code::kUnsupported, kTell, "the endpoint's GPU does not reach it");
  (void)ring_reaches_gpu_();  // the peer may receive into host memory, through the ring
  // Within one process the other end would read it in place, with a kernel that faults if the application frees the memory after
  // a failure here.
  if (peer_->same_process) return Status(Code::kUnsupported, kTell, "GPU memory of one process is not shared");
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
                    : file ? peer_->pass(file)
                           : Status::ok();
    if (!passed.is_ok()) {
      shares_.erase(known);
      return passed;
    }
    known->second.number = ++last_number_;
    numbers_.emplace(last_number_, key);
    stream_.send(ShareFrame{.share = last_number_, .memory = memory});
  }
  ++known->second.regions;
  return Stretch{.share = known->second.number, .begin = memory.base, .end = memory.base + memory.bytes};
}

std::vector<uint64_t> Sources::give_back(const Known& known) {
  std::vector<uint64_t> told;
  for (const Stretch& stretch : known.stretches) {
    const auto key = numbers_.find(stretch.share);
    if (key == numbers_.end()) continue;
    const auto share = shares_.find(key->second);
    if (--share->second.regions > 0) continue;
    told.push_back(stretch.share);
    unmapping_.insert(stretch.share);
    stream_.send(UnshareFrame{.share = stretch.share});
    shares_.erase(share);
    numbers_.erase(key);
  }
  return told;
}

}  // namespace tcpx
