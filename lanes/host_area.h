// HostPeer: what two endpoints of one host share as long as their connection lives. endpoint/same_host.h makes it.
//
// The shared area is memory that both endpoints have mapped and that neither can shrink. It holds the two rings of the control
// stream (base/shared_stream.h), two rings for bulk data that is not pulled (lanes/ring/ring_lane.h), and for each end one word
// that says whether its memory may still be read, the words of its leases (base/slot_leases.h), and those of the copies that it begins and
// that both ends make (base/joint_copy.h).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/host_copier.h"
#include "base/joint_copy.h"
#include "base/memory_ops.h"
#include "base/pagemap.h"
#include "base/segment_copier.h"
#include "base/slot_leases.h"
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

/// A ring for one direction, in shared memory. All zeros is an empty ring.
struct BulkRing {
  static constexpr size_t kBytes = size_t{4} << 20;
  alignas(64) std::atomic<uint64_t> written;  ///< bytes so far; only the sender stores
  alignas(64) std::atomic<uint64_t> read;     ///< bytes so far; only the receiver stores
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

  /// Makes zeroed memory of a fixed size, for `map` at both ends. @return kSystem with the errno
  static Result<UniqueFd> make();
  /// Maps the area and sets this end's `alive` word to 1. @param first true at one end and false at the other
  /// @return kProtocol: wrong size, or somebody could shrink it; kSystem
  static Result<SharedArea> map(int memory, bool first);

  explicit operator bool() const { return base_ != nullptr; }
  std::byte* base() const { return base_; }
  /// As given to `map`: tells which one of each pair in the area belongs to this end.
  bool first() const { return first_; }
  std::atomic<uint64_t>& alive(bool of_first) const;
  /// For slots of the first end, or of the other one.
  LeaseWords& leases(bool of_first) const;
  /// For joint copies that the first end begins, or the other one.
  JointWords& joint(bool of_first) const;
  /// The control stream's ring that the first end writes, or the one that the other end writes.
  SharedRing& ring(bool of_first) const;
  /// The ring for bulk data that the first end writes, or the one that the other end writes.
  BulkRing& bulk_ring(bool of_first) const;
  /// Both bulk rings, unmapped when the returned buffer goes. This end must not use them any more. Empty when called again.
  MemoryBuffer take_bulk_rings();

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;  // mapped
  bool first_ = false;
};

/// Threads: any for the two `alive` words; otherwise one at a time.
struct HostPeer {
  pid_t pid = 0;     ///< the peer's, in this pid namespace; 0: not visible from here
  UniqueFd process;  ///< pidfd of the peer, readable once it has ended; empty: the kernel gives none
  ForeignFd socket;  ///< Unix socket that wakes the peer's control stream
  ForeignFd files;   ///< Unix socket for descriptors only, in the order in which frames mention them
  SharedArea area;
  bool same_process = false;  ///< both endpoints are in this process
  bool reads_memory = false;  ///< this end can read the peer's memory with process_vm_readv
  bool is_read = false;       ///< the peer can read this end's memory

  /// True when the peer's process has ended, or has started another program: the kernel closes its end of the socket before that one has
  /// memory. Of one that this end cannot name: false.
  bool has_ended() const;
  /// Passes a copy of a descriptor. @return kExhausted: the peer has not taken earlier ones, try again later; kPeerGone; kSystem
  Status pass(const UniqueFd& file) const;
  /// Takes the next descriptor that the peer has passed; empty: this process has too many open.
  /// @return kProtocol: the peer has passed none; kPeerGone; kSystem
  Result<ForeignFd> take_passed() const;

  /// The peer's page map, opened at the first call that can: many connections never need the descriptor. Null: it is not known which of
  /// its pages are present.
  const std::shared_ptr<const Pagemap>& pages() const;
  void forget_pages() { pages_ = nullptr; }

  /// 1 while this end's memory may be read. Set it to 0, for good, before freeing memory that the peer may be reading.
  std::atomic<uint64_t>& own_alive() const { return area.alive(area.first()); }
  /// The peer's word. Bytes read from its memory count only if this is still 1 afterwards.
  const std::atomic<uint64_t>& peer_alive() const { return area.alive(!area.first()); }
  /// For slots of this end.
  LeaseWords& own_leases() const { return area.leases(area.first()); }
  /// For slots of the peer.
  LeaseWords& peer_leases() const { return area.leases(!area.first()); }
  /// For joint copies that this end begins.
  JointWords& own_joint() const { return area.joint(area.first()); }
  /// For those that the peer begins.
  JointWords& peer_joint() const { return area.joint(!area.first()); }

 private:
  mutable std::shared_ptr<const Pagemap> pages_;
};

}  // namespace tcpx
