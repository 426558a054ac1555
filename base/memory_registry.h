// MemoryRegistry: the memory an endpoint knows, its users, and the parts that peers may touch.
//
// A region is found by its id, checked for every range, and held by a RegionUse while anything may touch it. An advertisement is
// a random number that stands for a range of a region, for one connection or all; numbers from the wire are looked up here and
// compared, so an address never travels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
#include "tcpx/endpoint.h"

namespace tcpx {

/// Instead of a connection's id, which is never 0: all of an endpoint's, those of later included.
inline constexpr ConnId kAnyConnection{};

/// The GPU of a region, and how the endpoint gets at its memory.
struct GpuAccess {
  int gpu = 0;                      ///< whose memory it is; for host memory the endpoint's
  bool staged = false;              ///< not for the plugin, which could not use it
  SegmentCopier* copier = nullptr;  ///< of `gpu`, when the endpoint's GPU does not reach the memory; else null
};

/// Memory as the application gave it.
struct Region {
  MemoryId id{};
  std::byte* data = nullptr;
  size_t bytes = 0;
  MemoryType type = MemoryType::kHost;
  GpuAccess access = {};
  bool writable = true;  ///< every byte of it, when it was registered
};

/// Refuses what one message may not have ranges of together. @return kInvalidArgument: memory of host and GPU; kUnsupported: of
/// GPUs that it takes different copiers for
Status check_mix(std::string_view operation, const Region& a, const Region& b);

/// Asks the kernel about host memory, at the cost of host_access (base/mappings.h). @return true: this process may write every byte of
/// it; false: at least read; kInvalidArgument: some of it not even that
Result<bool> is_writable(const void* data, size_t bytes);
/// @return kInvalidArgument: bytes that may only be read
Status check_writable(std::string_view operation, const Region& region);

class MemoryRegistry;

/// Keeps a region from being let go. One thread at a time; the registry must outlive it.
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

/// The registry's own. All but `region` (constant) and `uses` is guarded by the registry's lock.
struct RegionUse::Entry {
  Entry(MemoryRegistry& owner, const Region& what) : registry(owner), region(what) {}

  MemoryRegistry& registry;
  const Region region;
  uint64_t count = 1;    ///< registrations
  bool closing = false;  ///< its last count is being removed: no new uses
  bool* kept = nullptr;  ///< of the `remove` that waits: set when the region was added again; `uses` carries kWaited
  /// Slots by connection and range, so that a range is found again and a connection's lie together.
  std::map<std::tuple<ConnId, uintptr_t, size_t, SlotAccess>, SlotId> slots{};
  /// RegionUses that hold it, and kWaited. From 0 raised with the lock held only.
  std::atomic<uint64_t> uses{0};
  static constexpr uint64_t kWaited = uint64_t{1} << 63;
};

/// A range that lies in its region, which it or one before it in its list holds: lists have thousands of ranges, most of one region,
/// and to count each costs more than all else that is done for it.
struct HeldRange {
  HeldRange(RegionUse held, std::byte* first, size_t size)
      : use(std::move(held)), data(first), bytes(size), region_(&use.region()) {}
  /// @param held may be empty: the region is then held by a range before this one, or by the owner of the list
  HeldRange(const Region& region, std::byte* first, size_t size, RegionUse held = {})
      : use(std::move(held)), data(first), bytes(size), region_(&region) {}

  const Region& region() const { return *region_; }

  RegionUse use;  ///< may be empty
  std::byte* data;
  size_t bytes;

 private:
  const Region* region_;
};

/// All of `bytes` bytes at `data` lie in the region. @return kInvalidArgument naming both
Status check_inside(const Region& region, const void* data, size_t bytes);
/// `bytes` bytes at `offset` of a range. @return their place; kInvalidArgument: they do not lie in it
Result<std::byte*> part_of(const HeldRange& range, uint64_t offset, uint64_t bytes);

/// Any of them holds that region.
bool uses(std::span<const HeldRange> ranges, MemoryId region);
/// Memory that the host gets at: its own, or that which stands in for a GPU's.
inline bool is_of_host(const Region& region, const MemoryOps& memory) {
  return region.type == MemoryType::kHost || !memory.has_gpu();
}
/// Ranges of one message, which are all of one kind.
bool is_on_gpu(const std::vector<HeldRange>& ranges);
/// Takes a message out of host memory. @return a view of `room`, which has it then; kSystem with EFAULT: the memory has gone
Result<std::span<const std::byte>> gather(const std::vector<HeldRange>& ranges, std::vector<std::byte>& room);
/// Puts a message into host memory. @param data as many bytes as the ranges have. @return kSystem with EFAULT: the memory has gone
Status scatter(const std::vector<HeldRange>& ranges, std::span<const std::byte> data);

/// Checks a slot handed to the application: is it one, and one that this version knows. The memory it names is known only to
/// the endpoint that made it. @return kInvalidArgument, kUnsupported
Status check_slot(const RemoteSlot& slot);

/// Any thread. A call holds the lock for a look into a hash table; only `remove` waits, and not with the lock.
class MemoryRegistry {
 public:
  static constexpr size_t kMaxAdverts = size_t{1} << 20;

  /// @param instance of the endpoint, stands in every slot
  explicit MemoryRegistry(uint64_t instance);
  ~MemoryRegistry();
  MemoryRegistry(const MemoryRegistry&) = delete;
  MemoryRegistry& operator=(const MemoryRegistry&) = delete;

  /// Memory that is added again, with the same data, bytes, type and right to write, keeps its id and is counted. Ids are never 0 and never
  /// reused. @param access its copier outlives all uses
  /// Adding a region that is being removed keeps it: that removal then ends as one of a count that is not the last.
  /// @return kInvalidArgument: nullptr, no bytes, or wraps around
  Result<MemoryId> add(const void* data, size_t bytes, MemoryType type, const GpuAccess& access = {}, bool writable = true);

  /// Checks that [data, data + bytes) lies in the region and holds it. bytes may be 0.
  /// @return kNotFound: no such region, or one being removed; kInvalidArgument naming range and region
  Result<RegionUse> use(MemoryId id, const void* data, size_t bytes);
  /// Holds the region. kNotFound as above.
  Result<RegionUse> use(MemoryId id);

  /// One count less. At the last: withdraws its advertisements, refuses new uses, and waits until nobody holds it.
  /// @return nullopt: others still count on it. The region, no longer known to anybody: the caller now lets connections forget it
  /// before the application frees the memory. kNotFound: also while another thread removes the last count. kTimeout: in use until
  /// the deadline; it is then as it was, without the advertisements.
  Result<std::optional<Region>> remove(MemoryId id, Deadline deadline);
  /// The same without waiting, for callers that drive progress themselves. @return kExhausted: still in use, and closed to new
  /// uses; ask again, or give up with `remove` and a deadline that has passed, which opens it again.
  Result<std::optional<Region>> try_remove(MemoryId id);

  /// A range has one slot for each connection and access, however often it is advertised. @param conn or kAnyConnection
  /// @param after work of the application's GPU on `stream`, which comes before what peers do with the memory; null: none. It takes the
  /// place of earlier work on the same stream. The mark's GpuOrder must outlive the registry.
  /// @param access default: what the memory allows
  /// @return kExhausted beyond kMaxAdverts distinct ranges; kInvalidArgument: kReadWrite of memory that may only be read; it and
  /// kNotFound as `use`
  Result<RemoteSlot> advertise(ConnId conn, MemoryId id, const void* data, size_t bytes, std::optional<SlotAccess> access = {},
                               std::unique_ptr<GpuMark> after = nullptr, void* stream = nullptr);
  /// All that was advertised under an id that came from the wire. @param writes what the peer wants
  /// @return nullopt: the application's GPU is not done with it yet. kNotFound: no such advertisement for this connection (any more);
  /// kInvalidArgument: it may be read only; kCuda: that of the GPU's work
  Result<std::optional<HeldRange>> look_up(ConnId conn, const SlotId& slot, bool writes);
  /// Withdraws one; what was looked up under it stays held. @return kNotFound: no such advertisement (any more)
  Status withdraw(const SlotId& slot);
  /// Withdraws all of a connection alone.
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
    std::vector<std::pair<void*, std::unique_ptr<GpuMark>>> after = {};  ///< by stream; gone when reached
  };
  using RangeKey = std::tuple<uintptr_t, size_t, MemoryType, bool>;
  /// Of a random number, half of which is as good as all.
  struct SlotHash {
    size_t operator()(const SlotId& id) const { return id.low; }
  };

  Result<Entry*> find(MemoryId id) TCPX_REQUIRES(mutex_);
  Result<Entry*> find(MemoryId id, const void* data, size_t bytes) TCPX_REQUIRES(mutex_);
  Result<Entry*> begin_removal(MemoryId id) TCPX_REQUIRES(mutex_);
  Region erase(Entry& entry) TCPX_REQUIRES(mutex_);
  void wake();

  const uint64_t instance_;
  mutable Mutex mutex_;
  CondVar changed_;  ///< a region that a `remove` waits for is held by nobody, or was added again
  std::unordered_map<MemoryId, Entry> entries_ TCPX_GUARDED_BY(mutex_);
  std::map<RangeKey, MemoryId> by_range_ TCPX_GUARDED_BY(mutex_);
  std::unordered_map<SlotId, Advert, SlotHash> adverts_ TCPX_GUARDED_BY(mutex_);
  uint64_t last_id_ TCPX_GUARDED_BY(mutex_) = 0;
};

inline void RegionUse::hold() {
  if (entry_ != nullptr) entry_->uses.fetch_add(1, std::memory_order_relaxed);
}

inline const Region& RegionUse::region() const {
  return entry_->region;
}

inline void RegionUse::release() {
  if (entry_ == nullptr) return;
  // With the count at 0 a `remove` may erase the entry at once, so nothing of it is touched after the subtraction.
  MemoryRegistry& registry = entry_->registry;
  // Release: all uses of the memory are over before the removal that reads 0 gives it back.
  if (std::exchange(entry_, nullptr)->uses.fetch_sub(1, std::memory_order_release) == (Entry::kWaited | 1)) registry.wake();
}

}  // namespace tcpx
