// FairMutex: a mutex whose waiters get it in the order of arrival. With a Mutex, threads that relock at once can starve another
// thread indefinitely.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/mutex.h"

namespace tcpx {

class TCPX_THREAD_ANNOTATION(capability("mutex")) FairMutex {
 public:
  FairMutex() = default;
  FairMutex(const FairMutex&) = delete;
  FairMutex& operator=(const FairMutex&) = delete;

  void lock() TCPX_THREAD_ANNOTATION(acquire_capability()) {
    std::unique_lock lock(mutex_);
    if (!held_) {
      held_ = true;
      return;
    }
    Waiter self;
    *end_ = &self;
    end_ = &self.behind;
    self.changed.wait(lock, [&self] { return self.has_turn; });
  }

  /// Never waits. @return false: another thread holds it
  bool try_lock() TCPX_THREAD_ANNOTATION(try_acquire_capability(true)) {
    const std::lock_guard lock(mutex_);
    return !std::exchange(held_, true);
  }

  /// Hands the mutex to the thread that has waited longest; no other thread can get in between.
  void unlock() TCPX_THREAD_ANNOTATION(release_capability()) {
    const std::lock_guard lock(mutex_);
    if (first_ == nullptr) {
      held_ = false;
      return;
    }
    Waiter& next = *first_;
    first_ = next.behind;
    if (first_ == nullptr) end_ = &first_;
    next.has_turn = true;
    next.changed.notify_one();  // while holding `mutex_`: otherwise the waiter could be gone by now
  }

 private:
  /// Lives on the stack of the waiting thread.
  struct Waiter {
    Waiter* behind = nullptr;
    bool has_turn = false;
    std::condition_variable changed;
  };

  std::mutex mutex_;  // held for a few instructions
  bool held_ = false;
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
