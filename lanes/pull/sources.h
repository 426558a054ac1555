// Sources: the data sender's part in pulls. It tells a peer on the same host where bytes of this end lie, so that the peer can copy
// them by itself, or that only the ring can carry them. It shares GPU memory with the peer first, allocation by allocation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "base/memory_registry.h"
#include "lanes/host_area.h"
#include "wire/control_stream.h"
#include "wire/messages.h"

namespace tcpx {

/// For one connection. One thread at a time: the one that makes progress. The GPU must be current.
class Sources {
 public:
  /// @param peer null: on another host; nothing has sources then
  /// @param ring_reaches_gpu pins the sending ring for this end's GPU; true if the GPU reaches it. All must outlive this
  Sources(const HostPeer* peer, MemoryOps& memory, ControlStream& stream, std::function<bool()> ring_reaches_gpu)
      : peer_(peer), memory_(memory), stream_(stream), ring_reaches_gpu_(std::move(ring_reaches_gpu)) {}

  /// The sources of these bytes, in the order of the ranges. Shares GPU memory among them with the peer before it returns.
  /// @return a single kHiddenMemory: the peer cannot read all of it, but the ring takes it; empty: neither is possible
  std::vector<WireSource> of(std::span<const HeldRange> ranges);
  /// Call when the region will not be used again. @return shares that the peer has been told to unmap
  std::vector<uint64_t> forget(MemoryId region);
  /// True while the peer still maps a share that it was told to unmap.
  bool is_mapped(uint64_t share) const { return unmapping_.contains(share); }
  /// The peer has unmapped a share. @return kProtocol: it was not told to
  Status on(const UnshareFrame& frame);

 private:
  /// Part of a region, and the share that it lies in.
  struct Stretch {
    uint64_t share = 0;
    uintptr_t begin = 0, end = 0;
  };
  /// What the peer knows of a region: a part that starts at the region's begin.
  struct Known {
    std::vector<Stretch> stretches;  // ascending, without gaps
    bool refused = false;            // the peer cannot read all of the region, and the ring does not take it
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

  const Known& known(const Region& region);
  Status tell(const Region& region, Known& known);
  Result<Stretch> share(uintptr_t address);
  std::vector<uint64_t> give_back(const Known& known);

  const HostPeer* const peer_;
  MemoryOps& memory_;
  ControlStream& stream_;
  const std::function<bool()> ring_reaches_gpu_;
  std::unordered_map<uint64_t, Known> regions_;
  std::unordered_map<ShareKey, Share, ShareHash> shares_;
  std::unordered_map<uint64_t, ShareKey> numbers_;
  std::unordered_set<uint64_t> unmapping_;  // shares for which `is_mapped` is true
  uint64_t last_number_ = kHostMemory;
};

}  // namespace tcpx
