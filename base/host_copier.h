// HostCopier: copies out of the memory of a process of this host, or of this one, by threads that share the work. The other process
// does nothing for it (process_vm_readv, "cross-memory attach"): the kernel lets a process read another one that it may trace. Memory
// that is not there is an error of the copy, in this process, too.
//
// Memory may also never answer: a file that is mapped out of a FUSE or NFS server that is dead, pages that somebody else is to bring
// (userfaultfd). Nobody can call back a thread that the kernel holds up there. So whoever calls `start` copies by itself only what is
// there (base/pagemap.h). The rest is left to threads, of which one that hangs is replaced, and outlives the copier. Such a thread
// takes what may hang into memory of its own first, and asks then whether the copy has been stopped meanwhile: a copy that has been
// given up writes nothing any more, whenever the memory answers.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/pagemap.h"
#include "base/segment_copier.h"
#include "tcpx/status.h"

namespace tcpx {

/// The memory of a copy that may never answer.
enum class MayHang : uint8_t { kBoth, kSources, kTargets };

/// One copy of many segments. Made by HostCopier::start. Any thread.
class HostCopy {
 public:
  /// Nothing of it writes memory any more, unless it was abandoned.
  bool done() const {
    const uint32_t writers = writers_.load(std::memory_order_acquire);
    return writers == kStopped || (writers & kAbandoned) != 0 || slices_left_.load(std::memory_order_acquire) == 0;
  }
  /// Once it is done: ok when all is in place. kSystem with errno: the memory is not there or may not be read; kPeerGone: the process
  /// has ended; kCancelled: stopped
  Status status() const;
  /// Once it is done: the kernel does not let this process read the other one, or does so no longer, whatever lies there.
  bool denied() const;
  /// Leaves out what has not begun to be written. `done` follows within the time that a slice takes, unless memory that is written
  /// never answers.
  void stop() { writers_.fetch_or(kStopped, std::memory_order_acq_rel); }
  /// The same, and it is done: where memory that is written never answers, something may still be written.
  void abandon() { writers_.fetch_or(kStopped | kAbandoned, std::memory_order_acq_rel); }
  /// A thread has been at one slice for so long that it was replaced.
  bool hangs() const { return hanging_.load(std::memory_order_relaxed) != 0; }

 private:
  friend class HostCopier;
  static constexpr uint32_t kStopped = uint32_t{1} << 31, kAbandoned = uint32_t{1} << 30;

  HostCopy(pid_t process, std::span<const CopySegment> segments, std::shared_ptr<const Pagemap> pages, MayHang may_hang);
  bool stopped() const { return (writers_.load(std::memory_order_relaxed) & kStopped) != 0; }
  bool copy_next(std::vector<std::byte>* apart);
  int copy(std::span<const CopySegment> segments, std::vector<std::byte>* apart);
  int copy_by_way_of(std::vector<std::byte>& apart, std::span<const CopySegment> segments);
  int write(pid_t from, std::span<const CopySegment> segments);

  const pid_t process_;
  const std::shared_ptr<const Pagemap> pages_;  // of the sources
  const MayHang may_hang_;
  std::vector<CopySegment> pieces_;
  std::vector<size_t> slices_;  // where each begins in `pieces_`, and the end
  std::atomic<size_t> next_slice_{0}, slices_left_{0};
  std::atomic<uint32_t> writers_{0};  // slices that are written now, with kStopped and kAbandoned
  std::atomic<uint32_t> hanging_{0};  // threads
  std::atomic<int> error_{0};         // the first errno
};

/// Any thread.
class HostCopier {
 public:
  /// Bytes of a slice, the unit that a thread takes.
  static constexpr size_t kSliceBytes = 512 * 1024;
  /// Up to so much is copied within `start` if all of it is there, because waking a thread takes longer.
  static constexpr size_t kAtOnceBytes = 128 * 1024;
  /// A thread that takes longer than this for a slice is replaced.
  static constexpr Duration kHangs = std::chrono::milliseconds(250);
  /// So many threads, replaced, may hang at a time. After that it takes one of those that are left.
  static constexpr size_t kMostHanging = 64;

  /// As the process to copy out of: this one, without asking the kernel (base/guarded_copy.h).
  static constexpr pid_t kThisProcess = 0;

  /// @param threads at least 1; they are started when the first long copy is
  explicit HostCopier(size_t threads);
  /// Copies under way end first, but those that hang are left behind, with their threads.
  ~HostCopier();
  HostCopier(const HostCopier&) = delete;
  HostCopier& operator=(const HostCopier&) = delete;

  /// Starts a copy. The segments may be reused at once; the memory they name must stay until it is done. No two of them overlap.
  /// @param process whose memory `from` lies in, as a number of this pid namespace; it may be this one, where `to` lies; or
  ///        kThisProcess
  /// @param pages of another process; null: what is there is not known
  std::shared_ptr<HostCopy> start(pid_t process, std::span<const CopySegment> segments,
                                  std::shared_ptr<const Pagemap> pages = nullptr, MayHang may_hang = MayHang::kBoth);
  /// To be called again and again while a copy is not done: replaces threads that hang.
  void relieve();

 private:
  struct Crew;
  struct Worker;
  static void run(const std::shared_ptr<Crew>& crew, const std::shared_ptr<Worker>& worker);
  std::shared_ptr<const Pagemap> own_pages();

  // Shared with its threads, because one that hangs outlives this.
  const std::shared_ptr<Crew> crew_;
};

/// True when the kernel would let another process read these pages of this one: those that a driver has mapped it may not.
bool can_be_read(const void* data, size_t bytes);

}  // namespace tcpx
