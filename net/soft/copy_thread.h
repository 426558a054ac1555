// A thread that copies on behalf of others, one thread per GPU and process.
//
// Reason: calls into CUDA take process-wide locks. With eight I/O threads that each started and queried copies, starting one
// took 12 us instead of 1.8. One thread that does nothing else keeps the copy engine busy, and a thread that waits for a copy
// polls a flag (docs/field_notes.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "base/mutex.h"
#include "base/spin_time.h"

namespace tcpx::soft {

class CopyThread {
 public:
  /// One copy at a time, reusable. Must not move while it is queued.
  class Copy {
   public:
    explicit Copy(std::unique_ptr<AsyncCopy> copy) : copy_(std::move(copy)) {}
    /// True when no copy is queued or in flight; an error is that of the copy. The owner, or a thread that got the copy from it.
    Result<bool> is_done() const;
    /// Returns when the copy no longer touches memory, whether it succeeded or not.
    void wait() const;

   private:
    friend class CopyThread;
    const std::unique_ptr<AsyncCopy> copy_;
    Copy* next_ = nullptr;  // in its line
    std::byte* target_ = nullptr;
    const std::byte* source_ = nullptr;
    uint32_t bytes_ = 0;
    Status result_;  // belongs to the thread while the copy is queued, else to the owner
    std::atomic<bool> queued_{false};
  };

  /// @param spin as of IoThread
  static Result<std::unique_ptr<CopyThread>> start(MemoryOps& memory, int device, Duration spin);
  CopyThread(const CopyThread&) = delete;
  CopyThread& operator=(const CopyThread&) = delete;
  /// Every copy must be done.
  ~CopyThread();

  /// Copies begin in the order in which they are queued. The copy must be done. Any thread.
  void queue(Copy& copy, std::byte* target, const std::byte* source, uint32_t bytes) TCPX_EXCLUDES(mutex_);

 private:
  CopyThread(MemoryOps& memory, int device, Duration spin) : memory_(memory), device_(device), spin_(spin) {}
  void run();
  /// Copies in order. Needs no memory: a copy that could not be queued would never be done.
  struct Line {
    Copy* first = nullptr;
    Copy* last = nullptr;
    bool empty() const { return first == nullptr; }
    void push_back(Copy& copy) {
      copy.next_ = nullptr;
      (empty() ? first : last->next_) = &copy;
      last = &copy;
    }
    Copy& pop_front() {
      Copy& copy = *first;
      first = copy.next_;
      return copy;
    }
  };
  /// Appends the queued copies to `copies`. May sleep until there is one.
  void take(Line& copies, bool may_sleep) TCPX_EXCLUDES(mutex_);
  static void end(Copy& copy, Status result);

  MemoryOps& memory_;
  const int device_;
  SpinTime spin_;  // the thread's
  std::atomic<bool> stop_{false};

  Mutex mutex_;
  CondVar work_came_;
  Line queued_ TCPX_GUARDED_BY(mutex_);
  std::atomic<bool> any_queued_{false};  // a hint, so that polling takes no lock
  bool asleep_ TCPX_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace tcpx::soft
