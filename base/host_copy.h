// HostCopy: a copy between the memory of this process and that of another one of this host, or within this process, in slices that
// several threads take. The other process takes no part (process_vm_readv and process_vm_writev, "cross-memory attach"): the kernel lets a
// process do that with one that it may trace. Memory that is not there fails the copy, also in this process.
//
// Access to memory may also hang forever: a mapped file of a dead FUSE or NFS server, or pages that another process has to
// provide (userfaultfd). A thread that the kernel holds up in such an access cannot be stopped. So a thread first copies what may hang
// into memory of its own, then checks whether the copy has been stopped meanwhile. Thus a copy that has been given up writes nothing,
// whenever the memory answers. Into another process only pages are written that are present.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/byte_sum.h"
#include "base/pagemap.h"
#include "base/segment_copier.h"
#include "tcpx/status.h"

namespace tcpx {

/// Which memory of a copy may hang when it is accessed.
enum class MayHang : uint8_t { kBoth, kSources, kTargets };

/// One copy of many segments, or their checksum, or a look at the ends of memory. Made and run by HostCopier. Any thread.
class HostCopy {
 public:
  /// Most and least bytes of a slice, the unit of work of a thread, as far as there is more than one of them.
  static constexpr size_t kSliceBytes = 512 * 1024, kLeastSliceBytes = 128 * 1024;
  /// But slices of a longer segment of another process end where its address is a multiple of this: what one of the kernel's page tables
  /// describes (of 4 KiB pages). The kernel holds the table's lock for every page that it pins, and threads that want the same one wait
  /// for each other: 64 MiB in slices of 512 KiB took 16 threads 1900 us, in such ones 870 (32 cores, a virtual machine).
  static constexpr size_t kTableBytes = 2 * 1024 * 1024;
  /// In place of a slice's bytes, for a copy by one thread: only the number of its segments cuts it.
  static constexpr size_t kOneSlice = SIZE_MAX;
  /// Names this process as the one to copy from, without a system call (base/guarded_copy.h).
  static constexpr pid_t kThisProcess = 0;

  /// True when the copy writes no memory any more, unless it was abandoned.
  bool done() const {
    const uint32_t writers = writers_.load(std::memory_order_acquire);
    return writers == kStopped || (writers & kAbandoned) != 0 || slices_left_.load(std::memory_order_acquire) == 0;
  }
  /// Result of a copy that is done: ok when all bytes are in place; kSystem with errno: the memory is not there or may not be
  /// read; kPeerGone: the process has ended; kCancelled: stopped
  Status status() const;
  /// For a copy that is done: true when `status` is ok. Needs no memory, which `status` may want to say why not.
  bool is_whole() const {
    return error_.load(std::memory_order_relaxed) == 0 && slices_left_.load(std::memory_order_acquire) == 0;
  }
  /// For a copy that is done: true when the kernel does not let this process read the other one (any more), whatever the memory.
  bool denied() const;
  /// Skips all slices whose writing has not begun. `done` follows within the time that a slice takes, unless writing hangs.
  void stop() { writers_.fetch_or(kStopped, std::memory_order_acq_rel); }
  /// Stops the copy and makes it done at once. When writing hangs, something may still be written later.
  void abandon() { writers_.fetch_or(kStopped | kAbandoned, std::memory_order_acq_rel); }
  /// The checksum, of one that is done well.
  uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }
  /// True when a thread has taken so long for one slice that it was replaced.
  bool hangs() const { return hanging_.load(std::memory_order_relaxed) != 0; }

 private:
  friend class HostCopier;
  static constexpr uint32_t kStopped = uint32_t{1} << 31, kAbandoned = uint32_t{1} << 30;

  enum class Kind : uint8_t {
    kRead,      // copies out of the process, which may be this one, into this one
    kWrite,     // copies out of this process into the process
    kSum,       // adds up memory of this process
    kReadEnds,  // reads the first and the last byte of memory of this process, so that they are present, and drops them
  };
  struct Work {
    Kind kind;
    pid_t process = kThisProcess;
    std::shared_ptr<const Pagemap> pages = nullptr;      // of the process; null: it is not known which are present
    std::shared_ptr<const Pagemap> own_pages = nullptr;  // kWrite: of this process
    MayHang may_hang = MayHang::kBoth;                   // kRead, kSum
    std::shared_ptr<const ByteSumKey> key = nullptr;     // kSum
  };

  HostCopy(Work work, std::span<const CopySegment> segments, size_t slice_bytes = kSliceBytes);
  bool stopped() const { return (writers_.load(std::memory_order_relaxed) & kStopped) != 0; }
  bool do_next(std::vector<std::byte>* apart);
  int do_slice(size_t slice, std::vector<std::byte>* apart);
  int read(std::span<const CopySegment> segments, std::vector<std::byte>* apart);
  int read_by_way_of(std::vector<std::byte>& apart, std::span<const CopySegment> segments);
  int write(std::span<const CopySegment> segments);
  int add_up(std::span<const CopySegment> segments, uint64_t place);
  int read_ends(std::span<const CopySegment> ends);
  bool sources_answer(std::span<const CopySegment> segments) const;
  bool is_there(std::span<const CopySegment> segments) const;
  template <class Access>
  int unless_stopped(Access access);

  const Work work_;
  bool was_there_ = false;  // kWrite: everything that it touches, when it was started
  uint64_t bytes_ = 0;
  std::vector<CopySegment> pieces_;
  std::vector<size_t> slices_;    // index in `pieces_` where each slice begins, then the end
  std::vector<uint64_t> places_;  // kSum: position of each slice's first byte
  std::atomic<size_t> next_slice_{0}, slices_left_{0};
  std::atomic<uint32_t> writers_{0};  // number of slices being written or summed, and the bits kStopped and kAbandoned
  std::atomic<uint32_t> hanging_{0};  // number of threads that hang
  std::atomic<int> error_{0};         // the first errno
  std::atomic<uint64_t> sum_{0};
};

}  // namespace tcpx
