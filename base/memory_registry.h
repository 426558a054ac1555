// MemoryRegistry: the memory that an endpoint knows, its users, and the parts that peers may access.
//
// A region is found by its id. Every range is checked against its region, and a RegionUse holds the region while anything may
// access it. An advertisement is a random number that stands for a range of a region, for one connection or for all. Numbers from
// the wire are looked up here, so addresses are never sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "base/mutex.h"
#include "base/segment_copier.h"
#include "base/slot_leases.h"
#include "tcpx/endpoint.h"

namespace tcpx {

/// Stands for all connections of an endpoint, including later ones. The id of a connection is never 0.
inline constexpr ConnId kAnyConnection{};

/// The GPU of a region, and how the endpoint accesses its memory.
struct GpuAccess {
  int gpu = 0;                      ///< the GPU that owns the memory; for host memory the endpoint's GPU
  bool staged = false;              ///< the plugin cannot use the memory, so its bytes go through staging buffers
  SegmentCopier* copier = nullptr;  ///< a copier of `gpu` when the endpoint's GPU does not reach the memory; otherwise null
};

/// Memory as the application registered it.
struct Region {
  MemoryId id{};
  std::byte* data = nullptr;
  size_t bytes = 0;
  MemoryType type = MemoryType::kHost;
  GpuAccess access = {};
  bool writable = true;  ///< every byte could be written when it was registered
};

/// Checks that one message may have ranges of both regions. @return kInvalidArgument: one is host memory and the other GPU
/// memory; kUnsupported: they belong to GPUs that need different copiers
Status check_mix(std::string_view operation, const Region& a, const Region& b);

/// Asks the kernel about host memory, at the cost of host_access (base/mappings.h). @return true: this process may write every
/// byte; false: it may read every byte; kInvalidArgument: it may not even read every byte
Result<bool> is_writable(const void* data, size_t bytes);
/// @return kInvalidArgument when the region may only be read, at least in part
Status check_writable(std::string_view operation, const Region& region);

/// When an advertisement ends by itself.
struct SlotEnd {
  TimePoint at = TimePoint::max();
  uint32_t uses = 0;  ///< after so many operations of peers; 0: any number

  bool comes() const { return at != TimePoint::max() || uses != 0; }
};

class MemoryRegistry;

/// Keeps a region from being removed. One thread at a time; the registry must outlive it.
class RegionUse {
 public:
  RegionUse() = default;
  RegionUse(const RegionUse& other) : entry_(other.entry_) { hold(); }
  RegionUse(RegionUse&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  RegionUse& operator=(RegionUse other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~RegionUse() { release(); }
  explicit operator bool() const { return entry_ != nullptr; }
  const Region& region() const;

 private:
  friend class MemoryRegistry;
  struct Entry;
  explicit RegionUse(Entry& entry) : entry_(&entry) { hold(); }
  void hold();
  void release();
  Entry* entry_ = nullptr;
};

/// The registry's record of a region. The registry's lock guards everything except `region`, which is constant, and `uses`.
struct RegionUse::Entry {
  Entry(MemoryRegistry& owner, const Region& what) : registry(owner), region(what) {}

  MemoryRegistry& registry;
  const Region region;
  uint64_t count = 1;    ///< number of registrations
  bool closing = false;  ///< the last registration is being removed: there can be no new uses
  bool* kept = nullptr;  ///< flag of the `remove` that waits; set to true when the region is added again. `uses` then has kWaited
  /// Slots by connection, range and access, so that a range is found again and the slots of a connection are neighbours. A slot that ends by
  /// itself is not found again: its id is in the key, too.
  using SlotKey = std::tuple<ConnId, uintptr_t, size_t, SlotAccess, SlotId>;
  std::map<SlotKey, SlotId> slots{};
  std::vector<std::shared_ptr<SlotLeases>> leases{};  ///< of the peers that have or had one of a slot, and are still there
  /// Number of RegionUses that hold the region, and the bit kWaited. Raised from 0 only while the lock is held.
  std::atomic<uint64_t> uses{0};
  static constexpr uint64_t kWaited = uint64_t{1} << 63;
};

/// A range within its region. The region is held by this range, or by an earlier range of the same list: a list may have
/// thousands of ranges, most of them in one region, and counting a use for each would cost more than everything else done for it.
struct HeldRange {
  HeldRange(RegionUse held, std::byte* first, size_t size)
      : use(std::move(held)), data(first), bytes(size), region_(&use.region()) {}
  /// @param held may be empty when an earlier range or the owner of the list holds the region
  HeldRange(const Region& region, std::byte* first, size_t size, RegionUse held = {})
      : use(std::move(held)), data(first), bytes(size), region_(&region) {}

  const Region& region() const { return *region_; }

  RegionUse use;  ///< may be empty
  std::byte* data;
  size_t bytes;

 private:
  const Region* region_;
};

inline bool is_inside(const Region& region, const void* data, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(region.data), address = reinterpret_cast<uintptr_t>(data);
  return address >= first && address - first <= region.bytes && bytes <= region.bytes - (address - first);
}
/// Checks that `bytes` bytes at `data` lie within the region. @return kInvalidArgument naming both
Status check_inside(const Region& region, const void* data, size_t bytes);
/// Address of `bytes` bytes at `offset` of a range. @return kInvalidArgument: they do not lie within the range
Result<std::byte*> part_of(const HeldRange& range, uint64_t offset, uint64_t bytes);

/// True when one of the ranges is in that region.
bool uses(std::span<const HeldRange> ranges, MemoryId region);
/// True for memory that the host can access: host memory, or host memory that stands in for a GPU's.
inline bool is_of_host(const Region& region, const MemoryOps& memory) {
  return region.type == MemoryType::kHost || !memory.has_gpu();
}
/// True when the ranges of a message are in GPU memory. All ranges of a message are in the same kind of memory.
bool is_on_gpu(const std::vector<HeldRange>& ranges);
/// Copies a message from host memory into `room`. @return a view of the copy; kSystem with EFAULT: the memory is gone
Result<std::span<const std::byte>> gather(const std::vector<HeldRange>& ranges, std::vector<std::byte>& room);
/// Copies a message into host memory. @param data as many bytes as the ranges have. @return kSystem with EFAULT: the memory is
/// gone
Status scatter(const std::vector<HeldRange>& ranges, std::span<const std::byte> data);

/// Checks the form and version of a slot that the application got from a peer. Only the endpoint that made the slot knows the
/// memory that it names. @return kInvalidArgument: not a slot; kUnsupported: a version that this library does not know
Status check_slot(const RemoteSlot& slot);
/// True when AdvertiseOptions::uses bounds how many operations it serves, so that one that names it must be one for the peer, too.
bool counts_uses(const RemoteSlot& slot);

/// Any thread. A call holds the lock only for a look into a hash table; only `remove` waits, and releases the lock meanwhile.
class MemoryRegistry {
 public:
  static constexpr size_t kMaxAdverts = size_t{1} << 20;

  /// @param instance number of the endpoint; every slot contains it
  explicit MemoryRegistry(uint64_t instance);
  ~MemoryRegistry();
  MemoryRegistry(const MemoryRegistry&) = delete;
  MemoryRegistry& operator=(const MemoryRegistry&) = delete;

  /// Adds a region. Memory that is added again with the same data, bytes, type and right to write keeps its id, and the
  /// registrations are counted. Ids are never 0 and never reused. Adding a region that is being removed keeps it: the removal
  /// then only takes one count away.
  /// @param access its copier must outlive all uses
  /// @return kInvalidArgument: nullptr, no bytes, or the range wraps around
  Result<MemoryId> add(const void* data, size_t bytes, MemoryType type, const GpuAccess& access = {}, bool writable = true);

  /// Checks that [data, data + bytes) lies in the region and holds it. bytes may be 0.
  /// @return kNotFound: no such region, or one being removed; kInvalidArgument naming range and region
  Result<RegionUse> use(MemoryId id, const void* data, size_t bytes);
  /// Holds the region. @return kNotFound: no such region, or one being removed
  Result<RegionUse> use(MemoryId id);

  /// Removes one registration of the region. When it was the last one, withdraws the region's advertisements, refuses new uses,
  /// and waits until nobody holds the region.
  /// @return nullopt: there are other registrations. The region: the registry no longer knows it, and the caller must make the
  /// connections forget it before the application frees the memory. kNotFound: no such region, or another thread is removing its
  /// last registration. kTimeout: the region was in use until the deadline; it stays registered, but its advertisements are gone.
  Result<std::optional<Region>> remove(MemoryId id, Deadline deadline);
  /// Removes without waiting, for callers that drive progress themselves. @return as `remove`; kExhausted instead of kTimeout:
  /// the region is still in use, and closed to new uses. Try again, or give up: `remove` with a deadline that has passed opens it
  /// again.
  Result<std::optional<Region>> try_remove(MemoryId id);

  /// Advertises a range. It has one slot for each connection and access, however often it is advertised, and one for each call with an
  /// end that comes.
  /// @param conn a connection, or kAnyConnection
  /// @param access default: what the memory allows
  /// @param after the application's GPU work on `stream` that must end before peers access the memory; null: none. Replaces
  /// earlier work on the same stream. The mark's GpuOrder must outlive the registry.
  /// @return kExhausted: more than kMaxAdverts distinct ranges; kInvalidArgument: kReadWrite of memory that may only be read, or
  /// the range is not within the region; kNotFound as for `use`
  Result<RemoteSlot> advertise(ConnId conn, MemoryId id, const void* data, size_t bytes, std::optional<SlotAccess> access = {},
                               std::unique_ptr<GpuMark> after = nullptr, void* stream = nullptr, SlotEnd end = {});
  /// Looks up the whole range that was advertised under an id from the wire. @param writes true: the peer wants to write
  /// @param counted set to true if `spend` must be called for the slot, once the operation can begin; not changed otherwise
  /// @return nullopt: the application's GPU has not finished its work on the range yet. kNotFound: no such advertisement for this
  /// connection (any more); kInvalidArgument: the range may only be read, or only be written; kCuda: the error of the GPU's work
  Result<std::optional<HeldRange>> look_up(ConnId conn, const SlotId& slot, bool writes, bool* counted = nullptr);
  /// Lets a peer read or write a slot without asking, as it is advertised, until the slot ends or is advertised again behind work of the
  /// GPU. Not one that ends by itself, or whose memory the GPU still uses. @return nullopt: no lease, or it has one
  std::optional<std::pair<SlotLeases::Lease, SlotAccess>> lease(ConnId conn, const SlotId& slot,
                                                                const std::shared_ptr<SlotLeases>& leases);
  /// Holds the first region of GPU memory that was added after the region `after`. @return empty: there is none
  RegionUse use_on_gpu(MemoryId after);
  /// The region of GPU memory that was added last, even if it has been removed since. 0: none was
  MemoryId newest_on_gpu() const { return newest_on_gpu_.load(std::memory_order_acquire); }
  /// Takes one use of each of these advertisements that were looked up, which an operation names; at the last use the advertisement ends.
  /// @return kNotFound: one has ended since, perhaps by another operation's use, and nothing is taken
  Status spend(std::span<const SlotId> slots);
  /// Withdraws an advertisement; ranges that were looked up stay held. @return kNotFound: no such advertisement (any more)
  Status withdraw(const SlotId& slot);
  /// True as long as the advertisement has not ended.
  bool is_advertised(const SlotId& slot);
  /// Withdraws all advertisements that are for this connection alone.
  void forget(ConnId conn);

  uint64_t instance() const { return instance_; }
  size_t regions() const;
  size_t advertised() const;

 private:
  friend class RegionUse;
  using Entry = RegionUse::Entry;
  struct Advert {
    ConnId conn{};
    Entry* entry = nullptr;
    std::byte* data = nullptr;
    size_t bytes = 0;
    SlotAccess access = SlotAccess::kReadWrite;
    SlotEnd end = {};                                                    ///< with the uses that are left
    std::vector<std::pair<void*, std::unique_ptr<GpuMark>>> after = {};  ///< by stream; removed once reached
    std::vector<HeldLease> leases = {};
  };
  using RangeKey = std::tuple<uintptr_t, size_t, MemoryType, bool>;

  Advert* find(ConnId conn, const SlotId& slot) TCPX_REQUIRES(mutex_);
  Result<Entry*> find(MemoryId id) TCPX_REQUIRES(mutex_);
  Result<Entry*> find(MemoryId id, const void* data, size_t bytes) TCPX_REQUIRES(mutex_);
  Result<Entry*> begin_removal(MemoryId id) TCPX_REQUIRES(mutex_);
  Region erase(Entry& entry) TCPX_REQUIRES(mutex_);
  static bool is_touched(const Entry& entry);
  static Entry::SlotKey key_of(const SlotId& slot, const Advert& advert);
  void erase(const SlotId& slot) TCPX_REQUIRES(mutex_);
  void drop(const SlotId& slot) TCPX_REQUIRES(mutex_);
  void erase_ended() TCPX_REQUIRES(mutex_);
  void wake();

  const uint64_t instance_;
  mutable Mutex mutex_;
  CondVar changed_;  ///< signalled when nobody holds a region any more for which a `remove` waits, or when it was added again
  std::unordered_map<MemoryId, Entry> entries_ TCPX_GUARDED_BY(mutex_);
  std::map<RangeKey, MemoryId> by_range_ TCPX_GUARDED_BY(mutex_);
  std::set<MemoryId> on_gpu_ TCPX_GUARDED_BY(mutex_);
  std::unordered_map<SlotId, Advert, SlotHash> adverts_ TCPX_GUARDED_BY(mutex_);
  std::set<std::pair<TimePoint, SlotId>> ends_ TCPX_GUARDED_BY(mutex_);  // slots that end at a time
  uint64_t last_id_ TCPX_GUARDED_BY(mutex_) = 0;
  std::atomic<MemoryId> newest_on_gpu_{};
};

inline void RegionUse::hold() {
  if (entry_ != nullptr) entry_->uses.fetch_add(1, std::memory_order_relaxed);
}

inline const Region& RegionUse::region() const {
  return entry_->region;
}

inline void RegionUse::release() {
  if (entry_ == nullptr) return;
  // Once the count is 0 a `remove` may erase the entry at once, so nothing of it is touched after the subtraction.
  MemoryRegistry& registry = entry_->registry;
  // Release: all uses of the memory are over before the `remove` that reads 0 returns the region.
  if (std::exchange(entry_, nullptr)->uses.fetch_sub(1, std::memory_order_release) == (Entry::kWaited | 1)) registry.wake();
}

}  // namespace tcpx
