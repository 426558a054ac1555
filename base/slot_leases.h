// SlotLeases: which slots of this end one peer of the same host may read without asking, because it reads the memory by itself.
//
// Each lease is a word in memory that both processes map. The peer copies first and looks at the word then: what it has copied counts
// only if the word is still the one that it was told. So a lease ends at once, whatever the peer is doing, and nobody waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tcpx/endpoint.h"

namespace tcpx {

/// A slot id is a random number, so half of it is a good hash.
struct SlotHash {
  size_t operator()(const SlotId& id) const { return id.low; }
};

/// The leases that one peer has. Any thread.
class SlotLeases {
 public:
  struct Lease {
    uint32_t place;  ///< of its word
    uint64_t word;   ///< as long as the lease lasts; never 0, and never the same again
  };

  /// @param words zeros, mapped until `close`. There are as many leases at most.
  explicit SlotLeases(std::span<std::atomic<uint64_t>> words) : words_(words) {}
  ~SlotLeases() { close(); }
  SlotLeases(const SlotLeases&) = delete;
  SlotLeases& operator=(const SlotLeases&) = delete;

  bool has(const SlotId& slot) const TCPX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return places_.contains(slot);
  }
  /// @return nullopt: the slot has one, or there is no place left
  std::optional<Lease> grant(const SlotId& slot) TCPX_EXCLUDES(mutex_);
  /// Ends the lease of a slot, if it has one.
  void end(const SlotId& slot) TCPX_EXCLUDES(mutex_);
  /// Ends all, for good.
  void close() TCPX_EXCLUDES(mutex_);
  bool closed() const TCPX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return words_.empty();
  }

 private:
  mutable Mutex mutex_;
  std::span<std::atomic<uint64_t>> words_ TCPX_GUARDED_BY(mutex_);  // empty: closed
  std::unordered_map<SlotId, uint32_t, SlotHash> places_ TCPX_GUARDED_BY(mutex_);
  std::vector<uint32_t> free_ TCPX_GUARDED_BY(mutex_);  // places that had a lease
  uint32_t unused_ TCPX_GUARDED_BY(mutex_) = 0;         // from here on, places had none
  uint64_t last_ TCPX_GUARDED_BY(mutex_) = 0;
};

/// A lease that ends with this object.
class HeldLease {
 public:
  HeldLease(std::shared_ptr<SlotLeases> leases, const SlotId& slot) : leases_(std::move(leases)), slot_(slot) {}
  HeldLease(HeldLease&&) = default;
  HeldLease& operator=(HeldLease&& other) noexcept {
    std::swap(leases_, other.leases_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~HeldLease() {
    if (leases_ != nullptr) leases_->end(slot_);
  }
  const SlotLeases& leases() const { return *leases_; }

 private:
  std::shared_ptr<SlotLeases> leases_;
  SlotId slot_;
};

}  // namespace tcpx
