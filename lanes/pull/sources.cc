#include "lanes/pull/sources.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/read_process.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr const char* kShare = "share GPU memory";

uintptr_t end_of(const Region& region) {
  return reinterpret_cast<uintptr_t>(region.data) + region.bytes;
}

Status bad_sources(std::string detail) {
  return Status(Code::kProtocol, "read sources", std::move(detail));
}

}  // namespace

Result<uint64_t> bytes_of_sources(std::span<const std::byte> words) {
  if (words.size() % sizeof(WireSource) != 0) return bad_sources(concat(words.size(), " bytes of sources"));
  const WireArray<WireSource> sources(words);
  uint64_t sum = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const WireSource source = sources[i];
    uint64_t end = 0;
    if (source.bytes == 0 || __builtin_add_overflow(source.address, source.bytes, &end) ||
        __builtin_add_overflow(sum, source.bytes, &sum))
      return bad_sources(concat("source ", i, " of ", source.bytes, " bytes at ", Hex{source.address}));
  }
  return sum;
}

bool Sources::are_ready(std::span<const HeldRange> ranges, bool early) {
  bool ready = true;
  for (size_t i = 0; i < ranges.size();) {
    const Region& region = ranges[i].region();
    uintptr_t end = 0;
    for (; i < ranges.size() && &ranges[i].region() == &region; ++i)
      end = std::max(end, reinterpret_cast<uintptr_t>(ranges[i].data) + ranges[i].bytes);
    ready &= is_ready(region, end, early);
  }
  return ready;
}

std::vector<WireSource> Sources::of(std::span<const HeldRange> ranges, size_t most) const {
  std::vector<WireSource> sources;
  sources.reserve(ranges.size());
  const Region* region = nullptr;  // of the range before: often the same again
  const std::vector<Stretch>* stretches = nullptr;
  for (const HeldRange& range : ranges) {
    if (&range.region() != region) {
      region = &range.region();
      const auto known = regions_.find(static_cast<uint64_t>(region->id));
      if (known == regions_.end()) return {};
      stretches = &known->second.stretches;
    }
    const auto begin = reinterpret_cast<uintptr_t>(range.data);
    auto stretch = std::upper_bound(stretches->begin(), stretches->end(), begin,
                                    [](uintptr_t address, const Stretch& s) { return address < s.end; });
    for (uintptr_t at = begin; at < begin + range.bytes; ++stretch) {
      if (stretch == stretches->end() || sources.size() == most) return {};
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
  for (const auto& asks : known->second.early) (void)unmapper_.cancel(*asks);
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

// @param end of the part of the region that is wanted
bool Sources::is_ready(const Region& region, uintptr_t end, bool early) {
  Known& known = regions_[static_cast<uint64_t>(region.id)];
  while (!known.refused && known.end(region) < end) {
    if (known.batch != nullptr && !known.batch->done.load(std::memory_order_acquire)) {
      if (!early) hurry(known);
      return false;
    }
    Status status;
    if (known.batch != nullptr) {
      status = pass(region, known);
    } else if (known.stretches.empty()) {
      status = look_at(region, known);
    }
    if (status.code() == Code::kExhausted) return true;  // the peer has to take earlier descriptors first, so not by this way now
    if (!status.is_ok()) {
      give_back(known, region.id);
      known = {};
      known.refused = true;
      log(LogLevel::kInfo, status.to_string(), ": a peer on the same host does not copy this memory by itself");
    } else if (!known.refused && known.end(region) < end) {
      ask(region, known, early);
    }
  }
  return true;
}

// @return why the region cannot be shared. Host memory needs no share.
Status Sources::look_at(const Region& region, Known& known) const {
  constexpr const char* kTell = "share memory with a peer of this host";
  if (is_of_host(region, memory_)) {
    // The kernel lets no other process read memory that a driver has mapped.
    if (!peer_.is_read || !can_be_read(region.data, region.bytes)) {
      known.refused = true;
    } else {
      known.stretches = {{.share = kHostMemory, .begin = known.end(region), .end = end_of(region)}};
    }
    return Status::ok();
  }
  if (region.access.copier != nullptr) return Status(Code::kUnsupported, kTell, "the endpoint's GPU does not reach it");
  return Status::ok();
}

// Asks the driver, on threads, for shares of the allocations, or of the chunks of a mapping, that the peer does not know; of few at a
// time.
void Sources::ask(const Region& region, Known& known, bool early) {
  known.passed = 0;
  known.early.clear();
  if (early) known.early.reserve(Unmapper::kMappingThreads);
  known.batch = std::make_shared<Batch>(known.end(region), end_of(region));
  for (size_t i = 0; i < Unmapper::kMappingThreads; ++i) {
    known.batch->asking.fetch_add(1, std::memory_order_relaxed);
    try {
      auto ask = [batch = known.batch, &memory = memory_] {
        batch->ask(memory);
        return MemoryBuffer();
      };
      if (early) {
        known.early.push_back(unmapper_.make(std::move(ask)));
      } else {
        unmapper_.begin(std::move(ask));
      }
    } catch (const std::bad_alloc&) {  // those that have begun do it all
      known.batch->leave();
      break;
    }
  }
  known.batch->leave();
}

// An operation waits for the batch, which was asked for early.
void Sources::hurry(Known& known) {
  std::vector<const PendingBuffer*> wanted;
  for (const auto& asks : known.early) wanted.push_back(asks.get());
  unmapper_.hurry(std::move(wanted));
  known.early.clear();
}

void Sources::Batch::ask(MemoryOps& memory) {
  while (Share* const share = take(memory)) {
    const auto address = reinterpret_cast<const void*>(share->begin);
    const Status asked = [&]() -> Status {
      try {
        TCPX_ASSIGN_OR_RETURN(share->memory, memory.share(address, share->file));
      } catch (const std::bad_alloc&) {
        return Status(Code::kExhausted, kShare, "out of memory");
      }
      const bool is_inside = share->memory.base <= share->begin && share->memory.bytes > share->begin - share->memory.base;
      return is_inside ? Status::ok() : Status(Code::kInternal, kShare, "the driver has answered for another address");
    }();
    share->status = asked;
  }
  leave();
}

// The next part, for the caller to ask for. @return null: none
Sources::Batch::Share* Sources::Batch::take(MemoryOps& memory) {
  const MutexLock lock(mutex);
  if (next >= end || shares.size() == kMost) return nullptr;
  Share& share = shares.emplace_back();
  share.begin = next;
  // Where the driver does not tell, this is the last one of the batch.
  const uint64_t most = end - next;
  next += std::min(memory.extent(reinterpret_cast<const void*>(next)).value_or(most), most);
  if (next == share.begin) next = end;
  return &share;
}

// The last one drops what comes behind a failure, or behind a gap: the driver may know less than its extents say, and the application
// may map memory anew meanwhile.
void Sources::Batch::leave() {
  if (asking.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  if (shares.empty()) status = Status(Code::kExhausted, kShare, "out of memory");
  for (size_t i = 0; i < shares.size() && status.is_ok(); ++i) {
    const bool joins = i == 0 || shares[i - 1].end() == shares[i].begin;
    if (joins) status = shares[i].status;
    if (!joins || !status.is_ok()) shares.resize(i);
  }
  done.store(true, std::memory_order_release);
}

// Tells the peer of the shares of the batch, which is done. @return kExhausted: not of all yet
Status Sources::pass(const Region& region, Known& known) {
  Batch& batch = *known.batch;
  for (; known.passed < batch.shares.size(); ++known.passed) {
    TCPX_ASSIGN_OR_RETURN(const Stretch shared, share(batch.shares[known.passed]));
    known.stretches.push_back({.share = shared.share, .begin = known.end(region), .end = std::min(shared.end, end_of(region))});
  }
  Status status = batch.status;
  known.batch = nullptr;
  return status;
}

// Tells the peer of a share unless it knows it from another region.
Result<Sources::Stretch> Sources::share(const Batch::Share& share) {
  const MemoryShare& memory = share.memory;
  const ShareKey key{.base = memory.base, .identity = memory.identity};
  const auto [known, is_new] = shares_.try_emplace(key);
  if (is_new) {
    Status passed = shares_.size() + unmapping_.size() > kMaxShares ? Status(Code::kUnsupported, kShare, "too many allocations")
                    : share.file                                    ? peer_.pass(share.file)
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
