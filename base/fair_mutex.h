// FairMutex: a mutex whose waiters get it in the order of arrival. With a Mutex, threads that relock at once can starve another
// thread indefinitely.
//
// One atomic word says whether it is held, so taking and releasing it costs one atomic operation each while nobody waits. A thread
// that waits says so in the word, and the holder then hands the mutex on under a lock, which guards the line of waiters.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/mutex.h"

namespace tcpx {

class TCPX_THREAD_ANNOTATION(capability("mutex")) FairMutex {
 public:
  FairMutex() = default;
  FairMutex(const FairMutex&) = delete;
  FairMutex& operator=(const FairMutex&) = delete;

  void lock() TCPX_THREAD_ANNOTATION(acquire_capability()) {
    if (try_lock()) return;
    std::unique_lock lock(mutex_);
    // From here on the holder's `unlock` takes `mutex_`, so it comes before this or after the wait has begun.
    if (word_.exchange(kWaitedFor, std::memory_order_acquire) == kFree) return;
    Waiter self;
    *end_ = &self;
    end_ = &self.behind;
    self.changed.wait(lock, [&self] { return self.has_turn; });
  }

  /// Never waits. @return false: another thread holds it
  bool try_lock() TCPX_THREAD_ANNOTATION(try_acquire_capability(true)) {
    Word free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }

  /// True while a thread has it.
  bool is_held() const { return word_.load(std::memory_order_relaxed) != kFree; }

  /// Hands the mutex to the thread that has waited longest; no other thread can get in between.
  void unlock() TCPX_THREAD_ANNOTATION(release_capability()) {
    Word held = kHeld;
    if (word_.compare_exchange_strong(held, kFree, std::memory_order_release, std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    if (first_ == nullptr) {
      word_.store(kFree, std::memory_order_release);
      return;
    }
    Waiter& next = *first_;
    first_ = next.behind;
    if (first_ == nullptr) end_ = &first_;
    next.has_turn = true;
    next.changed.notify_one();  // while holding `mutex_`: otherwise the waiter could be gone by now
  }

 private:
  /// kWaitedFor: held, and a thread waits or has waited.
  enum Word : uint8_t { kFree, kHeld, kWaitedFor };
  /// Lives on the stack of the waiting thread.
  struct Waiter {
    Waiter* behind = nullptr;
    bool has_turn = false;
    std::condition_variable changed;
  };

  std::atomic<Word> word_{kFree};
  std::mutex mutex_;  // held for a few instructions; guards the line of waiters
  Waiter* first_ = nullptr;
  Waiter** end_ = &first_;  // where the next waiter is linked
};

class TCPX_THREAD_ANNOTATION(scoped_lockable) FairLock {
 public:
  explicit FairLock(FairMutex& mutex) TCPX_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~FairLock() TCPX_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  FairLock(const FairLock&) = delete;
  FairLock& operator=(const FairLock&) = delete;

 private:
  FairMutex& mutex_;
};

}  // namespace tcpx
