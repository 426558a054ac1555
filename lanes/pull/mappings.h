// Mappings: the shares of the peer's GPU memory that this end's GPU has mapped. At the peer it is Sources that shares them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/memory_ops.h"
#include "lanes/host_area.h"
#include "lanes/pull/sources.h"
#include "lanes/unmapper.h"
#include "wire/control_stream.h"

namespace tcpx {

/// A share of the peer. Mapped and, after its last user, unmapped on the Unmapper's threads.
struct Mapping {
  Mapping(Unmapper& unmapper_of_it, uint64_t number, const MemoryShare& of)
      : unmapper(unmapper_of_it), share(number), memory(of) {}
  Mapping(const Mapping&) = delete;
  ~Mapping();
  bool contains(const WireSource& source) const;
  bool is_mapped() const { return mapped->is_done() && mapped->has_buffer(); }
  bool is_refused() const { return mapped->is_done() && !mapped->has_buffer(); }

  Unmapper& unmapper;
  const uint64_t share;
  const MemoryShare memory;
  std::shared_ptr<PendingBuffer> mapped;
  std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);  // true once it is unmapped
};

/// For one connection. One thread at a time: the one that makes progress.
class Mappings {
 public:
  /// All must outlive this.
  Mappings(const HostPeer& peer, const PullParts& parts, ControlStream& stream) : peer_(peer), parts_(parts), stream_(stream) {}

  /// The peer shares memory, or wants a share unmapped. @return kProtocol: not now, or not so
  Status on_share(const LaneFrame& frame);
  Status on_unshare(uint64_t share);
  /// Tells the peer which of the shares that it wants unmapped are unmapped now. @return false: none
  bool tell_unshared();
  /// True when that has something to tell.
  bool any_gone() const;
  /// True when the peer need not be told of any.
  bool all_told() const { return unshared_.empty(); }
  /// Null: the peer has not shared it.
  std::shared_ptr<Mapping> find(uint64_t share) const;
  size_t count() const { return mappings_.size(); }
  /// Lets go of all, and tells the peer of none.
  void close();

 private:
  /// A share that the peer wants unmapped.
  struct Unshared {
    uint64_t share = 0;
    std::shared_ptr<std::atomic<bool>> gone;
  };

  const HostPeer& peer_;
  const PullParts& parts_;
  ControlStream& stream_;
  std::unordered_map<uint64_t, std::shared_ptr<Mapping>> mappings_;  // by share
  std::vector<Unshared> unshared_;
};

}  // namespace tcpx
