// HostCopier: copies out of the memory of a process of this host, or of this one, by threads that share the work. The other process
// does nothing for it (process_vm_readv, "cross-memory attach"): the kernel lets a process read another one that it may trace. Memory
// that is not there is an error of the copy, in this process, too.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/segment_copier.h"
#include "tcpx/status.h"

namespace tcpx {

/// One copy of many segments. Made by HostCopier::start. Any thread.
class HostCopy {
 public:
  /// Nothing of it touches memory any more.
  bool done() const { return slices_left_.load(std::memory_order_acquire) == 0; }
  /// Once it is done: ok when all is in place. kSystem with errno: the memory is not there or may not be read; kPeerGone: the process
  /// has ended; kCancelled: stopped
  Status status() const;
  /// Once it is done: the kernel does not let this process read the other one, or does so no longer, whatever lies there.
  bool denied() const;
  /// Leaves out the slices that have not begun. `done` follows within the time that a slice takes.
  void stop() { stop_.store(true, std::memory_order_relaxed); }

 private:
  friend class HostCopier;
  HostCopy(pid_t process, std::span<const CopySegment> segments);
  bool copy_next();

  const pid_t process_;
  std::vector<CopySegment> pieces_;
  std::vector<size_t> slices_;  // where each begins in `pieces_`, and the end
  std::atomic<size_t> next_slice_{0}, slices_left_{0};
  std::atomic<bool> stop_{false};
  std::atomic<int> error_{0};  // the first errno
};

/// Any thread.
class HostCopier {
 public:
  /// Bytes of a slice, the unit that a thread takes.
  static constexpr size_t kSliceBytes = 512 * 1024;
  /// Up to so much is copied within `start`, because waking a thread takes longer.
  static constexpr size_t kAtOnceBytes = 128 * 1024;

  /// As the process to copy out of: this one, without asking the kernel (base/guarded_copy.h).
  static constexpr pid_t kThisProcess = 0;

  /// @param threads at least 1; they are started when the first long copy is
  explicit HostCopier(size_t threads) : wanted_threads_(threads) {}
  /// Copies under way end first.
  ~HostCopier();
  HostCopier(const HostCopier&) = delete;
  HostCopier& operator=(const HostCopier&) = delete;

  /// Starts a copy. The segments may be reused at once; the memory they name must stay until it is done. No two of them overlap.
  /// @param process whose memory `from` lies in, as a number of this pid namespace; it may be this one, where `to` lies; or
  ///        kThisProcess
  std::shared_ptr<HostCopy> start(pid_t process, std::span<const CopySegment> segments);

 private:
  void run();
  void start_threads() TCPX_REQUIRES(mutex_);

  const size_t wanted_threads_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<HostCopy>> copies_ TCPX_GUARDED_BY(mutex_);  // with slices that nobody has taken
  std::vector<std::thread> threads_ TCPX_GUARDED_BY(mutex_);
  bool ending_ TCPX_GUARDED_BY(mutex_) = false;
};

/// True when the kernel would let another process read these pages of this one: those that a driver has mapped it may not.
bool can_be_read(const void* data, size_t bytes);

}  // namespace tcpx
