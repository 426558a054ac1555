#include "endpoint/planned_ranges.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "endpoint/operation.h"

namespace tcpx {
namespace {

constexpr size_t kLeastPartRanges = 512;
constexpr uint64_t kLeastPartBytes = 8u << 20;

Status bad_range(size_t index, std::string why) {
  return Status(Code::kInvalidArgument, "check ranges", concat(std::move(why), " (range ", index, ")"));
}

// In place: a call of memcmp takes twice as long.
bool is_same(const RemoteSlot& a, const RemoteSlot& b) {
  const auto word = [](const RemoteSlot& slot, size_t i) {
    uint64_t value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(&slot) + i * sizeof value, sizeof value);
    return value;
  };
  uint64_t differing = 0;
  for (size_t i = 0; i < sizeof(RemoteSlot) / sizeof(uint64_t); ++i) differing |= word(a, i) ^ word(b, i);
  return differing == 0;
}

bool is_inside(const RemoteSlot& slot, uint64_t offset, uint64_t bytes) {
  return offset <= slot.bytes && bytes <= slot.bytes - offset;
}

/// Checks the ranges of one operation, one after the other. What neighbours share, region and slot, is checked once: nothing moves before
/// the last of thousands has been checked.
class RangeChecker {
 public:
  /// @param writes the ranges will be written
  /// @param uses gets a use for each row of ranges of one region; null: nothing is held
  explicit RangeChecker(MemoryRegistry& registry, bool writes = false, std::vector<RegionUse>* uses = nullptr)
      : registry_(registry), writes_(writes), uses_(uses) {}

  /// @param remote nullptr: the operation has no remote ranges
  Status check(const LocalRange& range, const RemoteRange* remote) {
    if (!is_like_last(range, remote)) TCPX_RETURN_IF_ERROR(check_anew(range, remote));
    ++index_;
    bytes_ += range.bytes;
    return Status::ok();
  }
  /// Bytes of all ranges.
  uint64_t bytes() const { return bytes_; }
  /// True when a slot at least counts its uses.
  bool counts_uses() const { return counts_uses_; }

 private:
  // True when the range is in the region and the slot of the one before, which may be used together.
  bool is_like_last(const LocalRange& range, const RemoteRange* remote) const {
    if (fits_ == nullptr || fits_ != region_ || fits_->id != range.memory || !is_inside(*fits_, range.data, range.bytes))
      return false;
    return remote == nullptr ||
           (slot_ != nullptr && is_same(*slot_, remote->slot) && is_inside(*slot_, remote->offset, range.bytes));
  }

  Status check_anew(const LocalRange& range, const RemoteRange* remote) {
    if (region_ != nullptr && region_->id == range.memory) {
      if (!is_inside(*region_, range.data, range.bytes)) return check_inside(*region_, range.data, range.bytes);
    } else {
      TCPX_ASSIGN_OR_RETURN(RegionUse use, registry_.use(range.memory, range.data, range.bytes));
      region_ = &use.region();
      (uses_ != nullptr ? uses_->emplace_back() : use_) = std::move(use);
    }
    if (remote != nullptr) {
      const RemoteSlot& slot = remote->slot;
      TCPX_RETURN_IF_ERROR(check_slot(slot));
      slot_ = &slot;
      counts_uses_ |= tcpx::counts_uses(slot);
      if (!is_inside(slot, remote->offset, range.bytes))
        return bad_range(index_, concat(range.bytes, " bytes at ", remote->offset, " of a slot of ", slot.bytes, " bytes"));
    }
    if (range.bytes == 0 || fits_ == region_) return Status::ok();
    if (writes_) TCPX_RETURN_IF_ERROR(check_writable("check ranges", *region_));
    if (!first_) first_ = *region_;
    TCPX_RETURN_IF_ERROR(check_mix("check ranges", *first_, *region_));
    fits_ = region_;
    return Status::ok();
  }

  MemoryRegistry& registry_;
  const bool writes_;
  std::vector<RegionUse>* const uses_;
  const Region* region_ = nullptr;  // of the range checked last
  RegionUse use_;                   // of region_, without `uses_`
  std::optional<Region> first_;     // of the first range that is not empty
  const Region* fits_ = nullptr;    // of the last range that is not empty: it may be used with the first one
  const RemoteSlot* slot_ = nullptr;  // checked last
  size_t index_ = 0;
  uint64_t bytes_ = 0;
  bool counts_uses_ = false;
};

/// Index of `thing` in `things`, where it is added when it is seen first.
template <class T, class Numbers>
uint32_t number_of(const T& thing, Numbers& numbers, std::vector<T>& things) {
  if (!things.empty() && things.back() == thing) return static_cast<uint32_t>(things.size() - 1);
  const auto [found, is_new] = numbers.try_emplace(thing, static_cast<uint32_t>(things.size()));
  if (is_new) things.push_back(thing);
  return found->second;
}

/// Extends the operation's last range if this one continues it at both ends. @return false: it does not
bool join(Operation& operation, const Region& region, const std::byte* data, const WireRange& remote) {
  if (operation.remote.empty()) return false;
  HeldRange& last = operation.ranges.back();
  WireRange& last_remote = operation.remote.back();
  if (last.data + last.bytes != data || &last.region() != &region || last_remote.slot != remote.slot ||
      last_remote.offset + last_remote.bytes != remote.offset)
    return false;
  last.bytes += remote.bytes;
  last_remote.bytes += remote.bytes;
  operation.bytes += remote.bytes;
  return true;
}

}  // namespace

Result<std::shared_ptr<const PlannedRanges>> plan_ranges(MemoryRegistry& registry, std::span<const LocalRange> ranges,
                                                         std::span<const RemoteRange> remote, uint64_t endpoint) {
  if (remote.size() != ranges.size() || ranges.size() > std::numeric_limits<uint32_t>::max()) {
    return Status(Code::kInvalidArgument, "prepare transfer",
                  concat(ranges.size(), " local ranges and ", remote.size(), " remote ones"));
  }
  auto plan = std::make_shared<PlannedRanges>();
  plan->endpoint = endpoint;
  plan->ranges.reserve(ranges.size());
  std::unordered_map<MemoryId, uint32_t> regions;
  std::map<SlotId, uint32_t> slots;
  RangeChecker checker(registry);
  for (size_t i = 0; i < ranges.size(); ++i) {
    TCPX_RETURN_IF_ERROR(checker.check(ranges[i], &remote[i]));
    plan->ranges.push_back({.data = static_cast<std::byte*>(ranges[i].data),
                            .bytes = ranges[i].bytes,
                            .offset = remote[i].offset,
                            .region = number_of(ranges[i].memory, regions, plan->regions),
                            .slot = number_of(remote[i].slot.id, slots, plan->slots)});
  }
  plan->bytes = checker.bytes();
  plan->counts_uses = checker.counts_uses();
  return std::shared_ptr<const PlannedRanges>(std::move(plan));
}

Result<std::shared_ptr<const PlannedRanges>> plan_blocks(MemoryRegistry& registry, const LocalRange& local,
                                                         const RemoteRange& remote, size_t block_bytes, uint64_t endpoint) {
  if (block_bytes == 0) return Status(Code::kInvalidArgument, "prepare blocks", "a block must have at least 1 byte");
  // Checks only the memory here and where the slot's blocks begin; operations check the blocks that they name.
  RangeChecker checker(registry);
  TCPX_RETURN_IF_ERROR(checker.check(local, nullptr));
  TCPX_RETURN_IF_ERROR(check_slot(remote.slot));
  if (remote.offset > remote.slot.bytes) {
    return Status(Code::kInvalidArgument, "prepare blocks",
                  concat("blocks at ", remote.offset, " of a slot of ", remote.slot.bytes, " bytes"));
  }
  auto plan = std::make_shared<PlannedRanges>();
  plan->endpoint = endpoint;
  plan->ranges = {{.data = static_cast<std::byte*>(local.data), .bytes = local.bytes, .offset = remote.offset}};
  plan->regions = {local.memory};
  plan->slots = {remote.slot.id};
  plan->counts_uses = counts_uses(remote.slot);
  plan->block_bytes = block_bytes;
  plan->blocks = local.bytes / block_bytes;
  plan->remote_blocks = (remote.slot.bytes - remote.offset) / block_bytes;
  return std::shared_ptr<const PlannedRanges>(std::move(plan));
}

Status NamedRanges::check(MemoryRegistry& registry, bool writes) {
  RangeChecker checker(registry, writes, &uses_);
  for (size_t i = 0; i < ranges_.size(); ++i) {
    TCPX_RETURN_IF_ERROR(checker.check(ranges_[i], remote_.empty() ? nullptr : &remote_[i]));
  }
  bytes_ = checker.bytes();
  counts_uses_ = checker.counts_uses();
  return Status::ok();
}

void NamedRanges::make_room(size_t count, Operation& operation) const {
  operation.ranges.reserve(count);
  if (!remote_.empty()) operation.remote.reserve(count);
}

void NamedRanges::give(size_t count, std::span<const RegionUse> uses, Operation& operation) {
  operation.named = {next_, next_ + count};
  for (const size_t end = next_ + count; next_ < end; ++next_) {
    const LocalRange& range = ranges_[next_];
    while (uses[use_].region().id != range.memory) ++use_;
    if (range.bytes == 0) continue;
    const Region& region = uses[use_].region();
    auto* const data = static_cast<std::byte*>(range.data);
    if (!remote_.empty()) {
      const WireRange there{remote_[next_].slot.id, remote_[next_].offset, range.bytes};
      if (join(operation, region, data, there)) continue;
      operation.remote.push_back(there);
    }
    operation.ranges.emplace_back(region, data, range.bytes);
    operation.bytes += range.bytes;
  }
}

size_t parts_of(size_t ranges, uint64_t bytes) {
  return std::clamp<size_t>(std::min<uint64_t>(ranges / kLeastPartRanges, bytes / kLeastPartBytes), 1, kMaxParts);
}

std::pair<size_t, size_t> stretch_of(size_t count, size_t part, size_t parts) {
  const auto end = [&](size_t of) { return count * of * (of + 1) / (parts * (parts + 1)); };
  return {part == 0 ? 0 : end(part), end(part + 1)};
}

std::vector<int> gpus_of(std::span<const RegionUse> uses, int own) {
  std::vector<int> gpus;
  for (const RegionUse& use : uses) {
    const int gpu = use.region().access.gpu;
    if (std::find(gpus.begin(), gpus.end(), gpu) == gpus.end()) gpus.push_back(gpu);
  }
  if (gpus.empty()) gpus.push_back(own);
  return gpus;
}

Status PlannedRanges::hold(MemoryRegistry& registry, std::vector<RegionUse>& uses) const {
  for (const MemoryId id : regions) {
    TCPX_ASSIGN_OR_RETURN(auto use, registry.use(id));
    uses.push_back(std::move(use));
  }
  return Status::ok();
}

Result<std::unique_ptr<PlannedRounds>> PlannedRounds::begin(std::shared_ptr<const PlannedRanges> plan,
                                                            std::span<const RegionUse> uses, std::optional<Chosen> chosen,
                                                            bool writes, size_t part, size_t parts) {
  const bool of_blocks = plan->block_bytes != 0;
  const size_t known = of_blocks ? plan->blocks : plan->ranges.size(), known_there = of_blocks ? plan->remote_blocks : known;
  if (chosen && !chosen->remote.empty() && (!of_blocks || chosen->remote.size() != chosen->local.size())) {
    return Status(Code::kInvalidArgument, "check ranges",
                  of_blocks ? concat(chosen->local.size(), " blocks here, ", chosen->remote.size(), " there")
                            : "remote indices for a plan that is not made of blocks");
  }
  auto stretch = stretch_of(chosen ? chosen->local.size() : plan->count(), part, parts);
  const size_t first = stretch.first;
  std::vector<uint32_t> local, remote;
  if (chosen) {
    const auto take = [&stretch](std::span<const uint32_t> all) {
      const auto own = all.empty() ? all : all.subspan(stretch.first, stretch.second - stretch.first);
      return std::vector<uint32_t>(own.begin(), own.end());
    };
    local = take(chosen->local);
    remote = take(chosen->remote);
    stretch = {0, local.size()};
  }
  for (size_t i = 0; i < local.size(); ++i) {
    const uint32_t here = local[i], there = remote.empty() ? here : remote[i];
    if (here >= known || there >= known_there) {
      return bad_range(first + i, of_blocks ? concat("block ", here, " of ", known, ", to block ", there, " of ", known_there)
                                            : concat("index ", here, " of a plan of ", known, " ranges"));
    }
  }
  std::unique_ptr<PlannedRounds> rounds(
      new PlannedRounds(std::move(plan), uses, std::move(local), std::move(remote), stretch, chosen ? first : 0));
  if (writes) TCPX_RETURN_IF_ERROR(rounds->check_targets());
  return rounds;
}

Status PlannedRounds::check_targets() const {
  const auto is_writable = [](const RegionUse& use) { return use.region().writable; };
  if (std::all_of(uses_.begin(), uses_.end(), is_writable)) return Status::ok();
  for (size_t i = next_; i < end_; ++i) {
    const PlannedRanges::Range range = at(i);
    if (range.bytes != 0) TCPX_RETURN_IF_ERROR(check_writable("check ranges", uses_[range.region].region()));
  }
  return Status::ok();
}

PlannedRanges::Range PlannedRounds::at(size_t index) const {
  const uint64_t here = indices_.empty() ? index : indices_[index];
  const uint64_t bytes = plan_->block_bytes;
  if (bytes == 0) return plan_->ranges[here];
  const uint64_t there = remote_indices_.empty() ? here : remote_indices_[index];
  PlannedRanges::Range range = plan_->ranges.front();
  range.data += here * bytes;
  range.offset += there * bytes;
  range.bytes = bytes;
  return range;
}

void PlannedRounds::next(Operation& operation) {
  operation.ranges.clear();
  operation.remote.clear();
  operation.bytes = 0;
  operation.named = {first_ + next_, first_ + end_};
  const size_t most = std::min<size_t>(end_ - next_, kMaxWireRanges);
  operation.ranges.reserve(most);
  operation.remote.reserve(most);
  for (; next_ < end_; ++next_) {
    const PlannedRanges::Range range = at(next_);
    if (range.bytes == 0) continue;
    const Region& region = uses_[range.region].region();  // held until the last round is over
    const WireRange there{plan_->slots[range.slot], range.offset, range.bytes};
    if (join(operation, region, range.data, there)) continue;
    if (operation.ranges.size() == kMaxWireRanges) {
      operation.named.second = first_ + next_;
      return;
    }
    operation.ranges.emplace_back(region, range.data, range.bytes);
    operation.remote.push_back(there);
    operation.bytes += range.bytes;
  }
}

}  // namespace tcpx
