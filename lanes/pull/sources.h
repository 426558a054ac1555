// Sources: what the data sender says of bytes that a peer on the same host can copy by itself: where they lie. GPU memory is shared
// with the peer first, allocation by allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "base/memory_registry.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "lanes/host_area.h"
#include "lanes/unmapper.h"
#include "wire/control_stream.h"
#include "wire/messages.h"

namespace tcpx {

/// The words of an offer: where part of the bytes lies in the data sender's memory. All sources of an offer add up to its bytes.
struct WireSource {
  uint64_t share;    ///< kHostMemory, or a number that a `share` message has named
  uint64_t address;  ///< in the sender's process
  uint64_t bytes;    ///< at least 1
};
static_assert(sizeof(WireSource) == 24 && std::is_trivially_copyable_v<WireSource>);
inline constexpr uint64_t kHostMemory = 0;
/// The bytes of all sources in the words of an offer or a lease. @return kProtocol naming what a correct peer would not say
Result<uint64_t> bytes_of_sources(std::span<const std::byte> words);
/// Shares that one end may have at once.
inline constexpr size_t kMaxShares = 4096;
/// Shares from which on none are made for operations that may come.
inline constexpr size_t kMaxExpectedShares = kMaxShares / 4;

/// What the two lanes of a pull tell each other of a share, whose number the data sender gives and never uses again.
enum class PullTalk : uint64_t {
  kShare,     ///< to the receiver: GPU memory that may be a source from now on, with a MemoryShare as words and, for
              ///< ShareKind::kFile, a descriptor in HostPeer::files
  kUnshare,   ///< to the receiver: the share is no source any more and is to be unmapped
  kUnshared,  ///< to the sender: it is unmapped
  // To the receiver, with 8 bytes: the checksum of the bytes of an offer, whose operation is the number. It may come before the peer has
  // taken the offer, or too late; the sender tells it once more in the lane's order (lanes/job_sums.h).
  kSum,        ///< of an operation that the sender started
  kSumOfRead,  ///< of one that the receiver started
  kLease,  ///< to the receiver: it may read or write a slot without asking, with a WireLease and the slot's sources. The number is the
           ///< place of the lease, and ends an earlier lease of that place.
  kJoin,  ///< to the sender: the receiver has begun a joint copy (base/joint_copy.h) by lease, with a WireJoint. The number is
          ///< the copy's.
};
/// The start of a lease's words.
struct WireLease {
  SlotId slot;
  uint64_t word;    ///< of LeaseWords at that place, as long as the lease lasts
  uint64_t access;  ///< a SlotAccess
};
static_assert(sizeof(WireLease) == 32 && std::is_trivially_copyable_v<WireLease>);
/// The words of a joint copy: the bytes of a slot, and where they lie at the end that begins it.
struct WireJoint {
  SlotId slot;
  uint64_t offset;   ///< in the slot
  uint64_t bytes;    ///< at least 1
  uint64_t address;  ///< in that end's process, of host memory
  uint64_t writes;   ///< 1: into the slot, 0: out of it
};
static_assert(sizeof(WireJoint) == 48 && std::is_trivially_copyable_v<WireJoint>);
/// Most sources of a lease.
inline constexpr size_t kMaxLeaseSources = (kMaxLaneFrameBytes - sizeof(WireLease)) / sizeof(WireSource);

inline bool is_to_sender(PullTalk what) {
  return what == PullTalk::kUnshared || what == PullTalk::kJoin;
}
inline LaneFrame talk(PullTalk what, uint64_t number, std::span<const std::byte> words = {}) {
  return {
      .way = Way::kPull, .to_sender = is_to_sender(what), .what = static_cast<uint64_t>(what), .number = number, .words = words};
}

/// For one connection. One thread at a time: the one that makes progress. The GPU must be current. The driver is asked for shares on the
/// Unmapper's threads for mappings, because each takes up to a millisecond, and a region of an allocator that grows has thousands.
class Sources {
 public:
  /// All must outlive this.
  Sources(const HostPeer& peer, MemoryOps& memory, Unmapper& unmapper, ControlStream& stream)
      : peer_(peer), memory_(memory), unmapper_(unmapper), stream_(stream) {}

  /// False while threads ask for shares of these ranges, and of what lies before them in their regions.
  /// @param early no operation waits for them
  bool are_ready(std::span<const HeldRange> ranges, bool early = false);
  /// The sources of these bytes, in the order of the ranges. Call when they are ready.
  /// @return empty: the peer cannot read all of it, or not yet, or there are more than `most`
  std::vector<WireSource> of(std::span<const HeldRange> ranges, size_t most = kMaxWireRanges) const;
  /// Shares that the peer may map.
  size_t count() const { return shares_.size(); }
  /// Call when the region will not be used again. Tells the peer to unmap what only this region needed.
  void forget(MemoryId region);
  /// True while the peer still maps a share that it was told to unmap because of this region.
  bool is_mapped(MemoryId region) const;
  /// The peer has unmapped a share. @return kProtocol: it was not told to
  Status on_unshared(const LaneFrame& frame);

 private:
  /// Part of a region, and the share that it lies in.
  struct Stretch {
    uint64_t share = 0;
    uintptr_t begin = 0, end = 0;
  };
  /// Shares of consecutive parts of a region, each asked for by one of several threads. The last thread writes all of it before `done`,
  /// and nothing afterwards.
  struct Batch {
    /// Each may have a descriptor until the peer has been told.
    static constexpr size_t kMost = 16;
    struct Share {
      uintptr_t begin = 0;  // of the part
      MemoryShare memory;
      UniqueFd file;  // empty: none is needed
      Status status;
      uintptr_t end() const { return memory.base + memory.bytes; }
    };
    Batch(uintptr_t from, uintptr_t to) : next(from), end(to) { shares.reserve(kMost); }
    void ask(MemoryOps& memory);
    Share* take(MemoryOps& memory);
    void leave();

    Mutex mutex;
    uintptr_t next TCPX_GUARDED_BY(mutex);  // begin of the part that nobody has asked for
    const uintptr_t end;
    std::vector<Share> shares;       // grows with the lock held, and never moves
    Status status;                   // why there are no more
    std::atomic<size_t> asking = 1;  // threads, and the one that begins it
    std::atomic<bool> done = false;
  };
  /// What the peer knows of a region: a part that starts at the region's begin.
  struct Known {
    std::vector<Stretch> stretches;  // ascending, without gaps
    std::shared_ptr<Batch> batch;    // of the part behind them
    // Who asks for it, behind what operations wait for; their buffers are empty. None once an operation waits for it.
    std::vector<std::shared_ptr<PendingBuffer>> early;
    size_t passed = 0;     // of the batch
    bool refused = false;  // the peer cannot read all of the region
    uintptr_t end(const Region& region) const {
      return stretches.empty() ? reinterpret_cast<uintptr_t>(region.data) : stretches.back().end;
    }
  };
  struct Share {
    uint64_t number = 0;
    uint64_t regions = 0;  // regions that use it
  };
  struct ShareKey {
    uint64_t base, identity;
    bool operator==(const ShareKey&) const = default;
  };
  struct ShareHash {
    size_t operator()(const ShareKey& key) const { return key.base / 4096 * 31 + key.identity; }
  };

  bool is_ready(const Region& region, uintptr_t end, bool early);
  Status look_at(const Region& region, Known& known) const;
  void ask(const Region& region, Known& known, bool early);
  void hurry(Known& known);
  Status pass(const Region& region, Known& known);
  Result<Stretch> share(const Batch::Share& share);
  void give_back(const Known& known, MemoryId region);

  const HostPeer& peer_;
  MemoryOps& memory_;
  Unmapper& unmapper_;
  ControlStream& stream_;
  std::unordered_map<uint64_t, Known> regions_;
  std::unordered_map<ShareKey, Share, ShareHash> shares_;
  std::unordered_map<uint64_t, ShareKey> numbers_;
  std::unordered_map<uint64_t, MemoryId> unmapping_;  // by share: the last region that needed it
  uint64_t last_number_ = kHostMemory;
};

}  // namespace tcpx
