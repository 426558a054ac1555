#include "base/memory_registry.h"

#include <algorithm>
#include <limits>
#include <new>
#include <string>

#include "base/guarded_copy.h"
#include "base/mappings.h"
#include "base/random.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr std::array<char, 4> kSlotMagic = {'T', 'X', 'S', 'L'};
constexpr uint16_t kSlotVersion = 2;
constexpr uint16_t kCountsUses = 1;  // of RemoteSlot::flags
// A removal looks so often whether a peer still writes.
constexpr Duration kLookAtWriters = std::chrono::microseconds(100);

uintptr_t address_of(const void* data) {
  return reinterpret_cast<uintptr_t>(data);
}

std::string range_text(const void* data, size_t bytes) {
  return concat(bytes, " bytes at ", Hex{address_of(data)});
}

Status no_region(std::string_view operation, MemoryId id) {
  return Status(Code::kNotFound, std::string(operation), concat("no registered memory has the id ", static_cast<uint64_t>(id)));
}

Status no_advertisement(std::string_view operation) {
  return Status(Code::kNotFound, std::string(operation), "no such advertisement, or it was withdrawn");
}

}  // namespace

Status check_inside(const Region& region, const void* data, size_t bytes) {
  if (is_inside(region, data, bytes)) return Status::ok();
  return Status(Code::kInvalidArgument, "use memory",
                concat(range_text(data, bytes), " do not lie in the registered ", range_text(region.data, region.bytes)));
}

Result<std::byte*> part_of(const HeldRange& range, uint64_t offset, uint64_t bytes) {
  if (offset > range.bytes || bytes > range.bytes - offset) {
    return Status(Code::kInvalidArgument, "remote range",
                  concat(bytes, " bytes at offset ", offset, " do not lie in the ", range.bytes, " advertised bytes"));
  }
  return range.data + offset;
}

bool uses(std::span<const HeldRange> ranges, MemoryId region) {
  return std::any_of(ranges.begin(), ranges.end(), [region](const HeldRange& range) { return range.region().id == region; });
}

bool is_on_gpu(const std::vector<HeldRange>& ranges) {
  return !ranges.empty() && ranges.front().region().type == MemoryType::kCuda;
}

Status check_mix(std::string_view operation, const Region& a, const Region& b) {
  if (a.type != b.type) return Status(Code::kInvalidArgument, std::string(operation), "host and GPU memory in one transfer");
  if (a.access.copier == b.access.copier) return Status::ok();
  return Status(Code::kUnsupported, std::string(operation),
                concat("memory of GPU ", a.access.gpu, " and of GPU ", b.access.gpu,
                       " in one transfer, and the endpoint's GPU does not reach both"));
}

Result<bool> is_writable(const void* data, size_t bytes) {
  const HostAccess allowed = host_access(data, bytes).value_or(HostAccess::kReadWrite);
  if (allowed != HostAccess::kNone) return allowed == HostAccess::kReadWrite;
  return Status(Code::kInvalidArgument, "register memory",
                concat(range_text(data, bytes), ", some of which this process may not read"));
}

Status check_writable(std::string_view operation, const Region& region) {
  if (region.writable) return Status::ok();
  return Status(Code::kInvalidArgument, std::string(operation),
                concat("the registered ", range_text(region.data, region.bytes), " may only be read, at least in part"));
}

// Even a single range is copied. The code that uses the bytes afterwards could not stop halfway if the memory disappeared.
Result<std::span<const std::byte>> gather(const std::vector<HeldRange>& ranges, std::vector<std::byte>& room) {
  size_t bytes = 0;
  for (const HeldRange& range : ranges) bytes += range.bytes;
  if (room.size() < bytes) room.resize(bytes);
  std::byte* to = room.data();
  for (const HeldRange& range : ranges) {
    if (const int error = guarded_copy(to, range.data, range.bytes); error != 0) return system_error("read short message", error);
    to += range.bytes;
  }
  return std::span<const std::byte>(room).first(bytes);
}

Status scatter(const std::vector<HeldRange>& ranges, std::span<const std::byte> data) {
  for (const HeldRange& range : ranges) {
    if (const int error = guarded_copy(range.data, data.data(), range.bytes); error != 0)
      return system_error("write short message", error);
    data = data.subspan(range.bytes);
  }
  return Status::ok();
}

Status check_slot(const RemoteSlot& slot) {
  if (slot.magic != kSlotMagic || slot.id == SlotId{}) {
    return Status(Code::kInvalidArgument, "remote slot", "these 64 bytes are not what advertise made");
  }
  if (slot.version != kSlotVersion) {
    return Status(Code::kUnsupported, "remote slot",
                  concat("has version ", slot.version, ", this library knows version ", kSlotVersion));
  }
  return Status::ok();
}

bool counts_uses(const RemoteSlot& slot) {
  return (slot.flags & kCountsUses) != 0;
}

MemoryRegistry::MemoryRegistry(uint64_t instance) : instance_(instance) {}
MemoryRegistry::~MemoryRegistry() = default;

Result<MemoryId> MemoryRegistry::add(const void* data, size_t bytes, MemoryType type, const GpuAccess& access, bool writable) {
  const uintptr_t address = address_of(data);
  if (data == nullptr || bytes == 0 || bytes > std::numeric_limits<uintptr_t>::max() - address) {
    return Status(Code::kInvalidArgument, "register memory", concat(range_text(data, bytes), " are no memory"));
  }
  MutexLock lock(mutex_);
  const RangeKey key(address, bytes, type, writable);
  if (const auto known = by_range_.find(key); known != by_range_.end()) {
    Entry& entry = entries_.find(known->second)->second;
    entry.closing = false;
    if (entry.kept == nullptr) {
      ++entry.count;
    } else {
      // The waiting `remove` is done: this registration replaces the one that it removes.
      *std::exchange(entry.kept, nullptr) = true;
      entry.uses.fetch_and(~Entry::kWaited, std::memory_order_relaxed);
      changed_.notify_all();
    }
    return known->second;
  }
  const MemoryId id{++last_id_};
  auto* const first = static_cast<std::byte*>(const_cast<void*>(data));
  entries_.try_emplace(id, *this,
                       Region{.id = id, .data = first, .bytes = bytes, .type = type, .access = access, .writable = writable});
  try {
    if (type == MemoryType::kCuda) on_gpu_.insert(id);
    by_range_.emplace(key, id);
  } catch (const std::bad_alloc&) {
    on_gpu_.erase(id);
    entries_.erase(id);
    throw;
  }
  if (type == MemoryType::kCuda) newest_on_gpu_.store(id, std::memory_order_release);
  return id;
}

Result<RegionUse> MemoryRegistry::use(MemoryId id, const void* data, size_t bytes) {
  MutexLock lock(mutex_);
  TCPX_ASSIGN_OR_RETURN(Entry* const entry, find(id, data, bytes));
  return RegionUse(*entry);
}

Result<RegionUse> MemoryRegistry::use(MemoryId id) {
  MutexLock lock(mutex_);
  TCPX_ASSIGN_OR_RETURN(Entry* const entry, find(id));
  return RegionUse(*entry);
}

Result<std::optional<Region>> MemoryRegistry::remove(MemoryId id, Deadline deadline) {
  MutexLock lock(mutex_);
  TCPX_ASSIGN_OR_RETURN(Entry* const found, begin_removal(id));
  if (found == nullptr) return std::optional<Region>();
  Entry& entry = *found;
  bool kept = false;
  entry.kept = &kept;
  // No wake-up is lost. A release of a use either comes before the next line, which then reads the reduced count, or it sees
  // kWaited and calls `wake`. That takes the lock, which is free only once this thread waits. Acquire here and below pairs with
  // the release of each use.
  uint64_t holders = entry.uses.fetch_or(Entry::kWaited, std::memory_order_acquire);
  bool in_time = true, touched = is_touched(entry);
  while ((holders != 0 || touched) && in_time) {
    if (touched) {  // nobody wakes this thread for that
      (void)changed_.wait_until(mutex_, std::min(deadline.at(), Clock::steady().now() + kLookAtWriters));
      in_time = !deadline.expired();
    } else {
      in_time = changed_.wait_until(mutex_, deadline.at());
    }
    if (kept) return std::optional<Region>();
    holders = entry.uses.load(std::memory_order_acquire) & ~Entry::kWaited;
    touched = is_touched(entry);
  }
  if (holders == 0 && !touched) return std::optional(erase(entry));
  entry.uses.fetch_and(~Entry::kWaited, std::memory_order_relaxed);
  entry.kept = nullptr;
  entry.closing = false;
  return Status(Code::kTimeout, "deregister memory",
                concat(range_text(entry.region.data, entry.region.bytes), " are in use by operations (", holders, " holds",
                       touched ? ", and a peer of this host uses them)" : ")"));
}

Result<std::optional<Region>> MemoryRegistry::try_remove(MemoryId id) {
  MutexLock lock(mutex_);
  TCPX_ASSIGN_OR_RETURN(Entry* const found, begin_removal(id));
  if (found == nullptr) return std::optional<Region>();
  Entry& entry = *found;
  if (entry.uses.load(std::memory_order_acquire) != 0 || is_touched(entry)) {
    return Status(Code::kExhausted, "deregister memory", "still in use");
  }
  return std::optional(erase(entry));
}

Result<RemoteSlot> MemoryRegistry::advertise(ConnId conn, MemoryId id, const void* data, size_t bytes,
                                             std::optional<SlotAccess> wanted, std::unique_ptr<GpuMark> after, void* stream,
                                             SlotEnd end) {
  MutexLock lock(mutex_);
  erase_ended();
  TCPX_ASSIGN_OR_RETURN(Entry* const found, find(id, data, bytes));
  Entry& entry = *found;
  const Status writable = check_writable("advertise memory", entry.region);
  const SlotAccess access = wanted.value_or(writable.is_ok() ? SlotAccess::kReadWrite : SlotAccess::kRead);
  if (access != SlotAccess::kRead) TCPX_RETURN_IF_ERROR(writable);
  RemoteSlot slot{.magic = kSlotMagic,
                  .version = kSlotVersion,
                  .flags = end.uses != 0 ? kCountsUses : uint16_t{0},
                  .endpoint = instance_,
                  .id = {},
                  .bytes = bytes,
                  .reserved = {}};
  const std::tuple key(conn, address_of(data), bytes, access, SlotId{});
  if (const auto known = entry.slots.find(key); known != entry.slots.end() && !end.comes()) {
    slot.id = known->second;
    Advert& advert = adverts_.find(slot.id)->second;
    if (after == nullptr) return slot;
    advert.leases.clear();
    auto& marks = advert.after;
    std::erase_if(marks, [stream](const auto& mark) { return mark.first == stream; });
    marks.emplace_back(stream, std::move(after));
    return slot;
  }
  if (adverts_.size() >= kMaxAdverts) {
    return Status(Code::kExhausted, "advertise memory", concat(kMaxAdverts, " ranges are advertised already"));
  }
  auto* const first = static_cast<std::byte*>(const_cast<void*>(data));
  do {
    TCPX_ASSIGN_OR_RETURN(slot.id.high, random_id());
    TCPX_ASSIGN_OR_RETURN(slot.id.low, random_id());
  } while (!adverts_.try_emplace(slot.id, Advert{conn, &entry, first, bytes, access, end}).second);
  try {
    if (after != nullptr) adverts_.find(slot.id)->second.after.emplace_back(stream, std::move(after));
    if (end.at != TimePoint::max()) ends_.emplace(end.at, slot.id);
    entry.slots.emplace(key_of(slot.id, adverts_.find(slot.id)->second), slot.id);
  } catch (const std::bad_alloc&) {
    drop(slot.id);
    throw;
  }
  return slot;
}

Result<std::optional<HeldRange>> MemoryRegistry::look_up(ConnId conn, const SlotId& slot, bool writes, bool* counted) {
  MutexLock lock(mutex_);
  erase_ended();
  Advert* const found = find(conn, slot);
  if (found == nullptr) return no_advertisement("remote range");
  Advert& advert = *found;
  if (advert.access == (writes ? SlotAccess::kRead : SlotAccess::kWrite)) {
    return Status(Code::kInvalidArgument, "remote range",
                  concat("it is advertised for ", writes ? "reading" : "writing", " only"));
  }
  while (!advert.after.empty()) {
    TCPX_ASSIGN_OR_RETURN(const bool reached, advert.after.back().second->reached());
    if (!reached) return std::optional<HeldRange>();
    advert.after.pop_back();
  }
  if (counted != nullptr && advert.end.uses != 0) *counted = true;
  return std::optional(HeldRange{RegionUse(*advert.entry), advert.data, advert.bytes});
}

std::optional<std::pair<SlotLeases::Lease, SlotAccess>> MemoryRegistry::lease(ConnId conn, const SlotId& slot,
                                                                              const std::shared_ptr<SlotLeases>& leases) {
  MutexLock lock(mutex_);
  Advert* const found = find(conn, slot);
  if (found == nullptr) return std::nullopt;
  Advert& advert = *found;
  if (advert.end.comes() || !advert.after.empty()) return std::nullopt;
  auto& peers = advert.entry->leases;
  std::erase_if(peers, [](const auto& peer) { return peer->closed(); });
  std::erase_if(advert.leases, [](const HeldLease& lease) { return lease.leases()->closed(); });
  advert.leases.reserve(advert.leases.size() + 1);
  if (std::find(peers.begin(), peers.end(), leases) == peers.end()) peers.push_back(leases);
  const auto lease = leases->grant(slot, advert.entry->region.id);
  if (!lease) return std::nullopt;
  advert.leases.emplace_back(leases, slot);
  return std::pair(*lease, advert.access);
}

RegionUse MemoryRegistry::use_on_gpu(MemoryId after) {
  MutexLock lock(mutex_);
  for (auto id = on_gpu_.upper_bound(after); id != on_gpu_.end(); ++id) {
    if (const auto entry = find(*id); entry.is_ok()) return RegionUse(**entry);
  }
  return {};
}

Status MemoryRegistry::spend(std::span<const SlotId> slots) {
  MutexLock lock(mutex_);
  erase_ended();
  for (const SlotId& slot : slots) {
    if (!adverts_.contains(slot)) return no_advertisement("remote range");
  }
  for (const SlotId& slot : slots) {
    if (uint32_t& uses = adverts_.find(slot)->second.end.uses; uses > 1) {
      --uses;
    } else {
      erase(slot);
    }
  }
  return Status::ok();
}

Status MemoryRegistry::withdraw(const SlotId& slot) {
  MutexLock lock(mutex_);
  if (!adverts_.contains(slot)) return no_advertisement("withdraw");
  erase(slot);
  return Status::ok();
}

bool MemoryRegistry::is_advertised(const SlotId& slot) {
  MutexLock lock(mutex_);
  erase_ended();
  return adverts_.contains(slot);
}

MemoryRegistry::Entry::SlotKey MemoryRegistry::key_of(const SlotId& slot, const Advert& advert) {
  return {advert.conn, address_of(advert.data), advert.bytes, advert.access, advert.end.comes() ? slot : SlotId{}};
}

void MemoryRegistry::erase(const SlotId& slot) {
  const Advert& advert = adverts_.find(slot)->second;
  advert.entry->slots.erase(key_of(slot, advert));
  drop(slot);
}

// Forgets a slot that its region forgets by itself.
void MemoryRegistry::drop(const SlotId& slot) {
  const auto found = adverts_.find(slot);
  ends_.erase({found->second.end.at, slot});
  adverts_.erase(found);
}

// True while a peer that has or had a lease copies.
bool MemoryRegistry::is_touched(const Entry& entry) {
  return std::any_of(entry.leases.begin(), entry.leases.end(),
                     [&](const auto& leases) { return leases->is_touched(entry.region.id); });
}

void MemoryRegistry::erase_ended() {
  if (ends_.empty()) return;
  for (const TimePoint now = Clock::steady().now(); !ends_.empty() && ends_.begin()->first <= now;)
    erase(SlotId(ends_.begin()->second));
}

void MemoryRegistry::forget(ConnId conn) {
  MutexLock lock(mutex_);
  for (auto& [id, entry] : entries_) {
    auto slot = entry.slots.lower_bound({conn, 0, 0, SlotAccess::kRead, SlotId{}});
    while (slot != entry.slots.end() && std::get<ConnId>(slot->first) == conn) {
      drop(slot->second);
      slot = entry.slots.erase(slot);
    }
  }
}

size_t MemoryRegistry::regions() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

size_t MemoryRegistry::advertised() const {
  MutexLock lock(mutex_);
  return adverts_.size();
}

// An advertisement for another connection is as unknown, so that no peer learns what exists.
MemoryRegistry::Advert* MemoryRegistry::find(ConnId conn, const SlotId& slot) {
  const auto found = adverts_.find(slot);
  const bool known = found != adverts_.end() && (found->second.conn == conn || found->second.conn == kAnyConnection);
  return known ? &found->second : nullptr;
}

Result<MemoryRegistry::Entry*> MemoryRegistry::find(MemoryId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.closing) return no_region("use memory", id);
  return &found->second;
}

Result<MemoryRegistry::Entry*> MemoryRegistry::find(MemoryId id, const void* data, size_t bytes) {
  TCPX_ASSIGN_OR_RETURN(Entry* const entry, find(id));
  TCPX_RETURN_IF_ERROR(check_inside(entry->region, data, bytes));
  return entry;
}

// Removes one registration. When it is the last one, refuses new uses and withdraws the region's advertisements.
// @return nullptr: there are other registrations
Result<MemoryRegistry::Entry*> MemoryRegistry::begin_removal(MemoryId id) {
  const auto found = entries_.find(id);
  // While another thread waits to remove the last registration, there is none left for this call.
  if (found == entries_.end() || found->second.kept != nullptr) return no_region("deregister memory", id);
  Entry& entry = found->second;
  if (entry.count > 1) {
    --entry.count;
    return nullptr;
  }
  for (const auto& [key, slot] : entry.slots) drop(slot);
  entry.slots.clear();
  entry.closing = true;
  return &entry;
}

Region MemoryRegistry::erase(Entry& entry) {
  const Region region = entry.region;
  by_range_.erase({address_of(region.data), region.bytes, region.type, region.writable});
  on_gpu_.erase(region.id);
  entries_.erase(region.id);
  return region;
}

void MemoryRegistry::wake() {
  MutexLock lock(mutex_);
  changed_.notify_all();
}

}  // namespace tcpx
