// MemoryRegistry: the memory an endpoint knows, who uses it, and what of it the peers may touch.
//
// A region is found by its id, checked for every range, and held by a RegionUse while anything may touch it. An advertisement is
// a random number that stands for a range of a region and one connection; what comes from the wire is looked up here and
// compared, so an address never travels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "tcpx/endpoint.h"

namespace tcpx {

/// What the pipeline is to register: begins at a multiple of 4096 at or before `data` for kCuda.
struct Region {
  MemoryId id{};
  std::byte* data = nullptr;  ///< as the application gave it
  size_t bytes = 0;
  MemoryType type = MemoryType::kHost;
  std::byte* aligned() const;    ///< `data` rounded down to 4096 for kCuda, else `data`
  size_t aligned_bytes() const;  ///< from there to the end
};

class MemoryRegistry;

/// Keeps a region from being let go. Move-only; the registry must outlive it.
class RegionUse {
 public:
  RegionUse() = default;
  RegionUse(RegionUse&& other) noexcept;
  RegionUse& operator=(RegionUse&& other) noexcept;
  ~RegionUse();
  explicit operator bool() const;
  const Region& region() const;

 private:
  friend class MemoryRegistry;
  struct Entry;
  RegionUse(MemoryRegistry* registry, Entry* entry);
  MemoryRegistry* registry_ = nullptr;
  Entry* entry_ = nullptr;
};

/// A range of an advertisement, looked up and checked.
struct GrantedRange {
  RegionUse use;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Any thread.
class MemoryRegistry {
 public:
  /// @param instance of the endpoint, stands in every slot
  explicit MemoryRegistry(uint64_t instance);
  ~MemoryRegistry();

  /// The same data, bytes and type again: the same id, counted. @return kInvalidArgument: nullptr, no bytes, or wraps around
  Result<MemoryId> add(const void* data, size_t bytes, MemoryType type);

  /// Checks that [data, data + bytes) lies in the region and holds it. bytes may be 0.
  /// @return kNotFound: no such region, or one being removed; kInvalidArgument naming range and region
  Result<RegionUse> use(MemoryId id, const void* data, size_t bytes);

  /// One count less. At the last: withdraws its advertisements, refuses new uses, and waits until nobody holds it.
  /// @return nullopt: others still count on it. The region, no longer known to anybody: the caller now lets connections forget it
  /// before the application frees the memory. kNotFound; kTimeout: in use until the deadline; it then stays registered with the
  /// count it had (without the advertisements).
  Result<std::optional<Region>> remove(MemoryId id, Deadline deadline);
  /// The same for callers that drive progress themselves: nullptr-free polling form. kExhausted: still in use, ask again.
  Result<std::optional<Region>> try_remove(MemoryId id);

  /// @return kExhausted beyond 2^20 distinct ranges. The same range for the same connection gives the same slot.
  Result<RemoteSlot> advertise(ConnId conn, MemoryId id, const void* data, size_t bytes);
  /// @return kNotFound: no such advertisement for this connection (any more); kInvalidArgument: beyond what was advertised
  Result<GrantedRange> look_up(ConnId conn, uint64_t slot, uint64_t offset, uint64_t bytes);
  /// Withdraws all of a connection.
  void forget(ConnId conn);

  size_t regions() const;
  size_t advertised() const;

 private:
  friend class RegionUse;
  // implementation's own
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tcpx
