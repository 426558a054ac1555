// SlotLeases: which slots of this end one peer of the same host may read and write by itself, without asking.
//
// Each lease is a word in memory that both processes map, and ends when this end clears the word. A peer that reads looks at the word
// when it has copied: what it has read counts only if the word is still the one that it was told. So nobody waits for a reader. A peer
// that writes says so first, in a count beside the word, and then looks at the word: it writes only if the lease lasts, and takes
// itself out of the count afterwards. This end clears the word first and looks at the count then. All of these are sequentially
// consistent, so either the peer sees that the lease has ended, or this end sees that the peer writes, and waits for it.
//
// GPU memory within one process is read where it lies, and a kernel that reads what was freed ends the process. So such a peer counts all
// its copies, by lease or not, and begins none when the connection has ended; who ends the connection then waits for them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

/// The words of one end's leases. All zeros at first.
struct LeaseWords {
  static constexpr size_t kMost = 1024;
  std::atomic<uint64_t> words[kMost];               ///< stored by the owner of the slots; 0: no lease
  std::atomic<uint32_t> writing[kMost];             ///< writes of the peer that may be under way
  std::atomic<uint32_t> reading;                    ///< reads of GPU memory by a peer in this process that may be under way
  std::atomic<uint64_t> bytes_read, bytes_written;  ///< by the peer, so far; only the peer stores
};

/// The leases that one peer has. Any thread.
class SlotLeases {
 public:
  struct Lease {
    uint32_t place;  ///< of its word
    uint64_t word;   ///< as long as the lease lasts; never 0, and never the same again
  };

  /// @param words mapped until `close` @param peer_is_here in this process: another one's count of reads is not believed
  explicit SlotLeases(LeaseWords& words, bool peer_is_here = false) : peer_is_here_(peer_is_here), words_(&words) {}
  ~SlotLeases() { close(); }
  SlotLeases(const SlotLeases&) = delete;
  SlotLeases& operator=(const SlotLeases&) = delete;

  bool has(const SlotId& slot) const TCPX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return places_.contains(slot);
  }
  /// @param region of the slot @return nullopt: the slot has one, or there is no place left
  std::optional<Lease> grant(const SlotId& slot, MemoryId region) TCPX_EXCLUDES(mutex_);
  /// Ends the lease of a slot, if it has one. The peer may still write.
  void end(const SlotId& slot) TCPX_EXCLUDES(mutex_);
  /// Ends all, and grants none from now on. The peer may still write.
  void end_all() TCPX_EXCLUDES(mutex_);
  /// True while the peer may be writing to the region, nullopt: to any; or `is_read`.
  bool is_touched(std::optional<MemoryId> region = {}) TCPX_EXCLUDES(mutex_);
  /// True when all leases have been ended, and a peer in this process may still be reading GPU memory.
  bool is_read() const TCPX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return is_read_still();
  }
  /// The same, when the peer touches nothing any more, or nobody waits for that: the words are not touched any more.
  void close() TCPX_EXCLUDES(mutex_);
  bool closed() const TCPX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return words_ == nullptr;
  }

 private:
  struct Place {
    uint32_t index = 0;
    MemoryId region{};
  };
  bool is_written(const Place& place) const TCPX_REQUIRES(mutex_) { return words_->writing[place.index].load() != 0; }
  bool is_read_still() const TCPX_REQUIRES(mutex_) {
    return peer_is_here_ && words_ != nullptr && !grants_ && words_->reading.load() != 0;
  }
  void end(const Place& place) TCPX_REQUIRES(mutex_);
  void free_unwritten() TCPX_REQUIRES(mutex_);

  const bool peer_is_here_;
  mutable Mutex mutex_;
  LeaseWords* words_ TCPX_GUARDED_BY(mutex_);  // null: closed
  std::unordered_map<SlotId, Place, SlotHash> places_ TCPX_GUARDED_BY(mutex_);
  std::vector<Place> ended_ TCPX_GUARDED_BY(mutex_);    // to which the peer wrote when last looked at
  std::vector<uint32_t> free_ TCPX_GUARDED_BY(mutex_);  // places that had a lease
  uint32_t unused_ TCPX_GUARDED_BY(mutex_) = 0;         // from here on, places had none
  uint64_t last_ TCPX_GUARDED_BY(mutex_) = 0;
  bool grants_ TCPX_GUARDED_BY(mutex_) = true;
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
  const std::shared_ptr<SlotLeases>& leases() const { return leases_; }

 private:
  std::shared_ptr<SlotLeases> leases_;
  SlotId slot_;
};

}  // namespace tcpx
