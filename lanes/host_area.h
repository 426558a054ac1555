// HostPeer: what two endpoints of one host share for as long as their connection lives. same_host.h makes it.
//
// The shared area is a piece of memory that both have mapped and that neither can shrink under the other. It holds the two rings
// of the control stream (base/shared_stream.h), two more for bulk data that is not read out of the other's memory
// (lanes/ring/ring_lane.h), and one word for each end that says whether its memory may be read.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/host_copier.h"
#include "base/memory_ops.h"
#include "base/segment_copier.h"
#include "base/unique_fd.h"
#include "lanes/unmapper.h"
#include "tcpx/status.h"

namespace tcpx {

struct SharedRing;

/// Parts with which the links of an endpoint copy within the host.
struct PullParts {
  MemoryOps& memory;
  int gpu = 0;
  SegmentCopier& gpu_copier;
  HostCopier& host_copier;
  Unmapper& unmapper;
};

/// One direction, in shared memory. All zeros is an empty one.
struct BulkRing {
  static constexpr size_t kBytes = size_t{4} << 20;
  alignas(64) std::atomic<uint64_t> written;  ///< bytes so far; the sender's
  alignas(64) std::atomic<uint64_t> read;     ///< bytes so far; the receiver's
  alignas(64) std::atomic<uint64_t> pinned;   ///< by the sender, whose GPU reaches it then: not 0
  alignas(4096) std::byte bytes[kBytes];
};

/// A mapping of the shared area. A forked child does not have it.
class SharedArea {
 public:
  SharedArea() = default;
  SharedArea(SharedArea&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), first_(std::exchange(other.first_, false)) {}
  SharedArea& operator=(SharedArea&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(first_, other.first_);
    return *this;
  }
  ~SharedArea();

  /// Memory that can neither shrink nor grow, full of zeros, for `map` at both ends. @return kSystem with the errno
  static Result<UniqueFd> make();
  /// @param first true at one of the two ends, which tells their words apart. This end's word of life becomes 1.
  /// @return kProtocol: not of the right size, or somebody could shrink it; kSystem
  static Result<SharedArea> map(int memory, bool first);

  explicit operator bool() const { return base_ != nullptr; }
  std::byte* base() const { return base_; }
  /// The end that this one is: which of each pair of things in the area is its own.
  bool first() const { return first_; }
  std::atomic<uint64_t>& alive(bool of_first) const;
  /// The ring that the first end writes, or the one that the other does.
  SharedRing& ring(bool of_first) const;
  /// The same for bulk data.
  BulkRing& bulk_ring(bool of_first) const;
  /// These, which nobody at this end uses any more, to be unmapped with what is returned; nothing when called again.
  MemoryBuffer take_bulk_rings();

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;  // mapped
  bool first_ = false;
};

/// Threads: the words of life any; the rest one at a time.
struct HostPeer {
  pid_t pid = 0;     ///< of the peer, in this pid namespace; 0: not visible from here
  UniqueFd process;  ///< pidfd of it, readable once it has ended; empty without `pid`
  ForeignFd socket;  ///< Unix socket: wakes the peer's control stream
  ForeignFd files;   ///< another one, for descriptors alone, in the order in which frames speak of them
  SharedArea area;
  bool same_process = false;  ///< both endpoints are of this process
  bool reads_memory = false;  ///< this end can read the peer's memory: with process_vm_readv
  bool is_read = false;       ///< the peer can read this end's

  /// Passes a copy of a descriptor. @return kExhausted: the peer has not taken those before, ask again; kPeerGone; kSystem
  Status pass(const UniqueFd& file) const;
  /// The next one that the peer has passed; empty: this process could not take it, having too many open.
  /// @return kProtocol: there is none; kPeerGone; kSystem
  Result<ForeignFd> take_passed() const;

  /// 1 while this end's memory may be read; set it to 0, for good, before memory goes that the peer may be reading.
  std::atomic<uint64_t>& own_alive() const { return area.alive(area.first()); }
  /// The peer's. What was read of its memory counts only when this still says 1 afterwards.
  const std::atomic<uint64_t>& peer_alive() const { return area.alive(!area.first()); }
};

}  // namespace tcpx
