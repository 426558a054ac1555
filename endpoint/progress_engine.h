// ProgressEngine: all that moves an endpoint's links, and the thread that does so unless the application drives.
//
// Operations and notifications reach it through lock-free queues. Calls that change what it works on (a new connection, a region
// that goes, statistics) take its lock, each in its turn, as the thread does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/fair_mutex.h"
#include "base/mutex.h"
#include "endpoint/current_gpu.h"
#include "endpoint/served_links.h"
#include "endpoint/submission_queue.h"
#include "endpoint/wakeable_epoll.h"
#include "transfer/backoff.h"

namespace tcpx {

/// Any thread, unless a function says otherwise.
class ProgressEngine {
 public:
  /// All must outlive it. @param forget as of ServedLinks, called with the lock held
  ProgressEngine(MemoryOps& memory, const EndpointConfig& config, OperationTable& operations, std::function<void(ConnId)> forget);
  ~ProgressEngine() { stop(); }
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  /// Before anything else; starts the thread if the endpoint is to have one. kSystem.
  Status start();
  /// Ends the thread, the links, and what waits for them. Nothing is submitted any more.
  void stop();

  /// The lock for a caller's thread, which gets in between two turns. Each caller that waits does so once.
  class TCPX_THREAD_ANNOTATION(scoped_lockable) Lock {
   public:
    explicit Lock(ProgressEngine& engine) TCPX_THREAD_ANNOTATION(acquire_capability(engine.mutex_))
        : engine_(engine), gpu_(engine.memory_, engine.config_.gpu_idx) {
      engine_.mutex_.lock();
      engine_.locks_.fetch_add(1);
    }
    ~Lock() TCPX_THREAD_ANNOTATION(release_capability()) { engine_.mutex_.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    ProgressEngine& engine_;
    CurrentGpu gpu_;
  };
  ServedLinks& links() TCPX_REQUIRES(mutex_) { return links_; }
  /// Takes all that has been submitted so far.
  void drain() TCPX_REQUIRES(mutex_);

  void submit(Operation& operation) {
    submitted_.push(operation);
    events_.wake();
  }
  /// Sends it at once when nobody makes progress just now, which saves waking the thread; the rest is left to the thread.
  void notify(std::unique_ptr<Notification> notification) TCPX_EXCLUDES(mutex_);
  /// Ends a sleep of the thread, after something has changed.
  void wake() { events_.wake(); }
  /// One turn. @return true when something advanced
  bool progress() TCPX_EXCLUDES(mutex_);
  /// For one who waits in a loop: makes the progress that is waited for when no thread does.
  void help(Backoff& backoff) TCPX_EXCLUDES(mutex_);
  /// Closes all links, and helps them to an end. @return true when there are none any more
  bool close_links() TCPX_EXCLUDES(mutex_);

  /// Cores the endpoint may use.
  uint32_t cores() const { return cores_; }
  /// There are cores enough to poll before a sleep.
  bool spins() const { return !Backoff::cores_are_few(cores_); }

 private:
  void run();
  bool turn() TCPX_REQUIRES(mutex_);
  bool try_turn() TCPX_REQUIRES(mutex_);
  bool take_submissions() TCPX_REQUIRES(mutex_);
  void sleep(std::optional<Duration> longest, uint64_t locks);

  MemoryOps& memory_;
  const EndpointConfig& config_;
  OperationTable& operations_;
  const uint32_t cores_;

  SubmissionQueue<Operation> submitted_;         // popped with the lock
  SubmissionQueue<Notification> notifications_;  // too; they belong to the queue
  std::atomic<uint64_t> locks_{0};               // taken by callers so far
  std::atomic<bool> stop_{false};
  // Every submitter reads it, while what stands before changes in every turn: cache lines of its own.
  alignas(64) WakeableEpoll events_;
  FairMutex mutex_;
  ServedLinks links_ TCPX_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tcpx
