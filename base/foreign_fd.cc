// Closes descriptors whose files other processes control, on threads that are started when there is something to close and end
// when there is not.
#include <atomic>
#include <chrono>
#include <deque>
#include <new>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/own_thread.h"
#include "base/unique_fd.h"

namespace tcpx {
namespace {

constexpr int kMaxThreads = 32;
constexpr Duration kHangs = std::chrono::milliseconds(100);

class Closers {
 public:
  void take(int fd) {
    if (!enqueue(fd)) close_here(fd);
  }

  /// True in the process that made the object. A forked child has none of the threads, and may have the lock in a locked state.
  bool is_here() const { return forks_ == count_forks(); }

  bool hang() {
    const MutexLock lock(mutex_);
    return !waiting_.empty() && Clock::steady().now() - moved_ > kHangs;
  }

 private:
  // @return false: the descriptor was not queued, because no thread can be started
  bool enqueue(int fd) {
    const MutexLock lock(mutex_);
    try {
      waiting_.push_back(fd);
    } catch (const std::bad_alloc&) {
      return false;
    }
    if (waiting_.size() == 1) moved_ = Clock::steady().now();
    if (threads_ == kMaxThreads) return true;
    auto thread = start_thread("tcpx-fd-close", [this] { run(); });
    if (thread.is_ok()) {
      thread->detach();
      ++threads_;
      return true;
    }
    if (threads_ > 0) return true;
    waiting_.pop_back();
    return false;
  }

  void run() {
    mutex_.lock();
    while (!waiting_.empty()) {
      const int fd = waiting_.front();
      waiting_.pop_front();
      moved_ = Clock::steady().now();
      mutex_.unlock();
      close_here(fd);
      mutex_.lock();
    }
    --threads_;
    mutex_.unlock();
  }

  const uint64_t forks_ = count_forks();
  Mutex mutex_;
  std::deque<int> waiting_ TCPX_GUARDED_BY(mutex_);
  int threads_ TCPX_GUARDED_BY(mutex_) = 0;
  TimePoint moved_ TCPX_GUARDED_BY(mutex_);  // when the queue was last empty or last moved on
};

// Never destroyed: a thread may be blocked until after the process has exited. Null when out of memory.
Closers* closers() {
  static std::atomic<Closers*> all{nullptr};
  Closers* known = all.load();
  while (known == nullptr || !known->is_here()) {
    auto* const fresh = new (std::nothrow) Closers;
    if (fresh == nullptr || all.compare_exchange_strong(known, fresh)) return fresh;
    delete fresh;
  }
  return known;
}

}  // namespace

void close_elsewhere(int fd) {
  if (Closers* const all = closers(); all != nullptr) {
    all->take(fd);
  } else {
    close_here(fd);
  }
}

bool foreign_closes_hang() {
  Closers* const all = closers();
  return all != nullptr && all->hang();
}

}  // namespace tcpx
