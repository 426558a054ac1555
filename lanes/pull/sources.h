// Sources: tells a peer of the same host where memory of this end lies, so that the peer copies it by itself; or that it cannot, and
// this end would put it into the ring that both share.
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

/// Of one connection. One thread at a time: the one that makes progress. The GPU must be current.
class Sources {
 public:
  /// @param peer null: not of this host, and nothing has sources
  /// @param ring_reaches_gpu whether the ring of what this end sends takes memory of its GPU; pins the ring for it. All must outlive this
  Sources(const HostPeer* peer, MemoryOps& memory, ControlStream& stream, std::function<bool()> ring_reaches_gpu)
      : peer_(peer), memory_(memory), stream_(stream), ring_reaches_gpu_(std::move(ring_reaches_gpu)) {}

  /// The places of those bytes, in the order of the ranges. The peer is told of GPU memory among them before this returns.
  /// @return one of kHiddenMemory: some of it the peer cannot reach, but the ring takes it; none: neither
  std::vector<WireSource> of(std::span<const HeldRange> ranges);
  /// Region will not be used again. @return shares that the peer has been told to unmap
  std::vector<uint64_t> forget(MemoryId region);
  /// The peer has been told to unmap it, and has not said that it has.
  bool is_mapped(uint64_t share) const { return unmapping_.contains(share); }
  /// The peer does not map it any more. @return kProtocol: it was not told to
  Status on(const UnshareFrame& frame);

 private:
  /// A stretch of a region, by the share that it is part of.
  struct Stretch {
    uint64_t share = 0;
    uintptr_t begin = 0, end = 0;
  };
  /// The part of a region that the peer has been told of, from its begin on.
  struct Known {
    std::vector<Stretch> stretches;  // ascending, side by side
    bool refused = false;            // neither can the peer reach all of it, nor does the ring take it
  };
  struct Share {
    uint64_t number = 0;
    uint64_t regions = 0;  // that count on it
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
  std::unordered_set<uint64_t> unmapping_;  // `is_mapped`
  uint64_t last_number_ = kHostMemory;
};

}  // namespace tcpx
