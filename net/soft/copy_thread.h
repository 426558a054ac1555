// A thread that makes copies for others, one thread per GPU and process.
//
// Why not everybody for himself: calls into CUDA take locks of the whole process. With eight I/O threads that each started copies
// and asked for their end, starting one took 12 us instead of 1.8. One thread that does nothing else keeps the copy engine busy,
// and those who wait for a copy look at a flag (docs/field_notes.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "base/mutex.h"

namespace tcpx::soft {

class CopyThread {
 public:
  /// One copy at a time, used over and over. Stays where it is while it is queued.
  class Job {
   public:
    explicit Job(std::unique_ptr<AsyncCopy> copy) : copy_(std::move(copy)) {}
    /// The owner. True when no copy is queued or in flight; the error is the copy's. Any thread that has the job from its owner.
    Result<bool> is_done() const;
    /// Returns when the copy touches no memory any more, whether it went well or not.
    void wait() const;

   private:
    friend class CopyThread;
    const std::unique_ptr<AsyncCopy> copy_;
    std::byte* target_ = nullptr;
    const std::byte* source_ = nullptr;
    uint32_t bytes_ = 0;
    Status result_;  // the thread's while the job is queued, else the owner's
    std::atomic<bool> queued_{false};
  };

  /// @param spin how long the thread polls for work after it last had some, before it sleeps.
  static Result<std::unique_ptr<CopyThread>> start(MemoryOps& memory, int device, Duration spin);
  CopyThread(const CopyThread&) = delete;
  CopyThread& operator=(const CopyThread&) = delete;
  /// Every job must be done.
  ~CopyThread();

  /// Copies begin in the order in which they are queued. The job must be done. Any thread.
  void queue(Job& job, std::byte* target, const std::byte* source, uint32_t bytes) TCPX_EXCLUDES(mutex_);

 private:
  CopyThread(MemoryOps& memory, int device, Duration spin) : memory_(memory), device_(device), spin_(spin) {}
  void run();
  /// Appends what is queued to `jobs`. May sleep until there is something.
  void take(std::deque<Job*>& jobs, bool may_sleep) TCPX_EXCLUDES(mutex_);
  static void end(Job& job, Status result);

  MemoryOps& memory_;
  const int device_;
  const Duration spin_;
  std::atomic<bool> stop_{false};

  Mutex mutex_;
  CondVar work_came_;
  std::vector<Job*> queued_ TCPX_GUARDED_BY(mutex_);
  std::atomic<bool> any_queued_{false};  // a hint, so that polling takes no lock
  bool asleep_ TCPX_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace tcpx::soft
