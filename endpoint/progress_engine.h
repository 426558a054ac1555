// ProgressEngine: makes the progress of an endpoint's links, on the progress thread or, without one, in calls of the application.
//
// Operations and notifications reach it through lock-free queues. Other calls that need the links (a new connection, a region that
// goes, statistics) take its lock, which is fair: each caller and the thread get it in turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/fair_mutex.h"
#include "base/mutex.h"
#include "base/spin_time.h"
#include "endpoint/current_gpu.h"
#include "endpoint/served_links.h"
#include "endpoint/submission_queue.h"
#include "endpoint/wakeable_epoll.h"
#include "net/net_plugin.h"
#include "transfer/backoff.h"

namespace tcpx {

/// Any thread, unless a function says otherwise.
class ProgressEngine {
 public:
  /// All must outlive this. @param forget as in ServedLinks, called with the lock held
  ProgressEngine(MemoryOps& memory, const EndpointConfig& config, OperationTable& operations, std::function<void(ConnId)> forget);
  ~ProgressEngine() { stop(); }
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  /// Call first. Starts the thread if the endpoint is to have one. @param io sockets of the plugin: who makes a turn moves their bytes;
  /// null: the plugin does. Without a progress thread, null @return kSystem
  Status start(std::unique_ptr<IoLoop> io = nullptr);
  /// Ends the thread, the links, and everything that was submitted. Nothing may be submitted afterwards.
  void stop();

  /// The lock for a caller's thread, which gets in between two turns.
  class TCPX_THREAD_ANNOTATION(scoped_lockable) Lock {
   public:
    explicit Lock(ProgressEngine& engine) TCPX_THREAD_ANNOTATION(acquire_capability(engine.mutex_))
        : engine_(engine), gpu_(engine.memory_, engine.config_.gpu_idx) {
      engine_.mutex_.lock();
      engine_.changes_.fetch_add(1);
    }
    ~Lock() TCPX_THREAD_ANNOTATION(release_capability()) { engine_.mutex_.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    ProgressEngine& engine_;
    CurrentGpu gpu_;
  };
  ServedLinks& links() TCPX_REQUIRES(mutex_) { return links_; }
  /// Gives everything submitted so far to its links.
  void drain() TCPX_REQUIRES(mutex_);

  /// Begins the only operation on this thread, but for posted receives, if the progress thread rests, which is faster than waking it; on
  /// few cores also while that has nothing to do.
  void submit(Operation& operation) TCPX_EXCLUDES(mutex_) {
    const ConnId conn = operation.conn;
    const OperationId id = operation.id;
    submitted_.push(operation);  // it may have ended by now
    if (!may_begin_here() || operations_.outstanding_but_receives() > 1 || !begin_here(conn, id)) events_.wake();
  }
  /// Call when the application has looked for an end or a notification that has not come. Makes a turn in place of a progress thread that
  /// rests; as long as the application looks again and again, that goes on resting. Where cores are many it rests so only while looks find
  /// something, and not beside several operations or one that needs polling. @return true when something advanced
  bool look() TCPX_EXCLUDES(mutex_);
  /// True while the progress thread leaves the turns to callers who look.
  bool naps() const { return naps_.load(std::memory_order_relaxed); }
  /// True while callers may make turns in place of the progress thread, which sleeps or watches them.
  bool rests() const { return rests_.load(std::memory_order_relaxed); }
  /// True for a while after a look on few cores has yielded to a thread that had much to do.
  bool is_crowded() const { return Clock::steady().now().time_since_epoch() < crowded_until_.load(std::memory_order_relaxed); }
  /// A wait of an application's thread, from before it sleeps to its end. The thread first looks, for a short while: to be woken takes
  /// longer, and so does each step that two threads of one end take in turn. Then the progress thread takes over again. Of several who wait
  /// one looks, for all. Where other threads want all of few cores a sleeper gets one sooner than who yields.
  class Waiter {
   public:
    /// @param waits asked whether there is still something to wait for
    template <class Waits>
    Waiter(ProgressEngine& engine, Waits waits, Deadline deadline) : engine_(engine) {
      const bool may_look = engine.config_.progress_thread && !engine.is_crowded();
      if (may_look && !engine.waiter_looks_.exchange(true)) {
        const Deadline until = Deadline::after(kLookBeforeAWait).earlier(deadline);
        while (waits() && !until.expired()) (void)engine.look();
        engine.waiter_looks_.store(false);
        looked_ = true;
      }
      sleeps_ = waits();
      if (sleeps_) engine.sleepers_.fetch_add(1);
      // A thread that looks tells that it leaves before it asks for sleepers, and one that sleeps the other way round: either sees the other.
      if (engine.sleepers_.load() > 0 && !(may_look && engine.waiter_looks_.load())) engine.look_no_more();
    }
    ~Waiter() {
      if (sleeps_) engine_.sleepers_.fetch_sub(1);
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    /// Time for which the wait polls before it sleeps.
    Duration spin() const { return looked_ || !engine_.spins() ? Duration::zero() : kLookBeforeAWait; }

   private:
    ProgressEngine& engine_;
    bool looked_ = false;
    bool sleeps_ = false;
  };
  /// Sends a notification on this thread if the lock is free, which is faster than waking the progress thread; else that sends it.
  void notify(std::unique_ptr<Notification> notification) TCPX_EXCLUDES(mutex_);
  /// Ends a sleep of the thread, after something has changed.
  void wake() { events_.wake(); }
  /// Ends a sleep of the thread because of something for which callers who look would find their turn, too.
  void tell();
  /// Makes one turn. @return true when something advanced
  bool progress() TCPX_EXCLUDES(mutex_);
  /// Call in a loop that waits: makes progress if there is no progress thread.
  void help(Backoff& backoff) TCPX_EXCLUDES(mutex_);
  /// Closes all links, and makes one turn. @return true when no link is left
  bool close_links() TCPX_EXCLUDES(mutex_);

  /// Cores that the endpoint may use.
  uint32_t cores() const { return cores_; }
  /// True if there are enough cores to poll before a sleep.
  bool spins() const { return !cores_are_few(cores_); }

 private:
  static constexpr Duration kLookBeforeAWait = std::chrono::microseconds(200);

  void run();
  bool turn() TCPX_REQUIRES(mutex_);
  bool move_bytes(bool readable) TCPX_REQUIRES(mutex_);
  bool watches_io() const { return io_ != nullptr && io_->fd() >= 0; }
  void attend();
  void leave();
  bool try_turn() TCPX_REQUIRES(mutex_);
  bool take_submissions() TCPX_REQUIRES(mutex_);
  bool may_begin_here() const { return rests() || (config_.progress_thread && !spins()); }
  bool begin_here(ConnId conn, std::optional<OperationId> id) TCPX_EXCLUDES(mutex_);
  bool sleep(std::optional<Duration> longest, uint64_t changes);
  Duration look_pause() const;
  void wait_for_turn();
  bool is_looked_for(TimePoint now) const;
  void look_no_more() {
    if (looks_in_a_row_.load(std::memory_order_relaxed) != 0) looks_in_a_row_.store(0, std::memory_order_relaxed);
    if (naps()) events_.wake();
  }
  TimePoint watch(TimePoint now, SpinTime& spin);
  void nap(uint64_t changes);
  void doze();
  bool rest(WakeableEpoll::Until until, std::optional<Duration> longest, std::optional<uint64_t> changes);

  MemoryOps& memory_;
  const EndpointConfig& config_;
  OperationTable& operations_;
  const uint32_t cores_;

  SubmissionQueue<Operation> submitted_;         // popped with the lock held
  SubmissionQueue<Notification> notifications_;  // popped with the lock held; owns its items
  std::atomic<uint64_t> changes_{0};             // how often callers have taken the lock, and threads have told
  std::atomic<bool> stop_{false};
  std::atomic<bool> told_{false};  // by the last turn of io_: the links need one
  // A cache line that changes only when the progress thread falls asleep or wakes, because every look reads it.
  alignas(64) std::atomic<bool> rests_{false};  // it does, and looks after deadlines in time
  std::atomic<bool> dozes_{false};              // it looks again in a moment, and need not be told
  std::atomic<bool> naps_{false};               // it leaves the sockets to callers who look
  // The looks of callers. Not exact if several threads look at once.
  alignas(64) std::atomic<Duration> looked_at_{};  // when the last one ended, since the clock's epoch
  std::atomic<bool> looks_{false};                 // one is under way; it may have yielded its core
  std::atomic<uint32_t> looks_in_a_row_{0};
  std::atomic<uint32_t> advances_{0};  // looks that have found something to do
  std::atomic<bool> waiter_looks_{false};
  std::atomic<uint32_t> sleepers_{0};      // who waits, and does not look
  std::atomic<Duration> crowded_until_{};  // since the clock's epoch: a look has yielded to a thread that had much to do
  // Cache lines of its own, because every submitter reads it while the members above change in every turn.
  alignas(64) WakeableEpoll events_;
  FairMutex mutex_;
  bool moved_ TCPX_GUARDED_BY(mutex_) = false;  // bytes of the plugin, in the last turn
  ServedLinks links_ TCPX_GUARDED_BY(mutex_);
  std::unique_ptr<IoLoop> io_;  // constant while the thread runs
  std::thread thread_;
};

}  // namespace tcpx
