// Mutex with lock annotations that clang checks (-Wthread-safety); other compilers ignore them.
//
// A thread that finds it held polls for some microseconds before it sleeps, unless cores are few: most are held for less than a wake-up
// takes, and where several threads meet, each would wait for the wake-up of the one before it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TCPX_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TCPX_THREAD_ANNOTATION(x)
#endif
#define TCPX_GUARDED_BY(lock) TCPX_THREAD_ANNOTATION(guarded_by(lock))
#define TCPX_REQUIRES(...) TCPX_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define TCPX_EXCLUDES(...) TCPX_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace tcpx {

class TCPX_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() TCPX_THREAD_ANNOTATION(acquire_capability()) {
    if (!mutex_.try_lock()) lock_held();
  }
  bool try_lock() TCPX_THREAD_ANNOTATION(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() TCPX_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  void lock_held();

  std::mutex mutex_;
};

class TCPX_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TCPX_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() TCPX_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Waits on a Mutex that the caller holds.
class CondVar {
 public:
  void wait(Mutex& mutex) TCPX_REQUIRES(mutex) { cv_.wait(mutex); }
  /// @return false: `time` has passed
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point time) TCPX_REQUIRES(mutex) {
    return cv_.wait_until(mutex, time) == std::cv_status::no_timeout;
  }
  void notify_all() { cv_.notify_all(); }

 private:
  std::condition_variable_any cv_;
};

}  // namespace tcpx
