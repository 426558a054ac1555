// Event loops that move bytes between sockets and memory: a few threads shared by all connections of the process.
//
// A handler is registered with one thread and runs only there. Events are edge-triggered: a handler goes on until the socket
// would block, or says kAgain to let others run in between. Anybody may `kick` a registration to have its handler run once more.
//
// A thread that has had nothing to do for the time it may spin sleeps in epoll_wait without a timeout: idle connections cost no
// processor time. While it is awake a kick costs no system call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "net/soft/bindings.h"
#include "tcpx/status.h"

namespace tcpx::soft {

class IoHandler {
 public:
  enum class Next { kWait, kAgain };
  virtual ~IoHandler() = default;
  /// The descriptor became ready, or somebody kicked. Must not block on the network, and must not wait for a thread that may be
  /// in IoRegistration::remove.
  virtual Next on_ready() = 0;
  /// The other end has sent its last byte, or the connection is broken; there may still be bytes to read. Called before on_ready,
  /// under the same rules.
  virtual void on_hang_up() {}
};

class IoThread;

/// A descriptor's place in an event loop, filled by IoThread::add. Destruction removes it: after that the handler is not running,
/// through whichever registration it was called, and will not run again for this one. The descriptor stays open and must outlive
/// this; so must the thread.
class IoRegistration {
 public:
  IoRegistration() = default;
  IoRegistration(const IoRegistration&) = delete;
  IoRegistration& operator=(const IoRegistration&) = delete;
  ~IoRegistration() { remove(); }

  /// Any thread that knows the handler has run, or that made the registration; also while and after it is removed. Cheap; takes
  /// no lock that a handler holds.
  void kick() const;
  /// The owner only. Waits for a call of its handler in progress on another thread: do not call it with a lock that the handler
  /// takes. Does not wait for other handlers.
  void remove();

 private:
  friend class IoThread;
  IoThread* thread_ = nullptr;  // with fd_ and id_ constant once filled, so that kick needs no lock
  int fd_ = -1;
  uint64_t id_ = 0;
  bool removed_ = false;
};

class IoThread {
 public:
  /// @param spin how long the thread keeps polling after it last had work, before it sleeps.
  static Result<std::unique_ptr<IoThread>> start(Duration spin = Duration::zero(), const CoreSet& cores = {});
  ~IoThread();

  /// Fills an empty `registration`. `handler` and `fd` must outlive it. The handler is called once soon, ready or not.
  Status add(int fd, IoHandler& handler, IoRegistration& registration) TCPX_EXCLUDES(handlers_mutex_);

 private:
  friend class IoRegistration;
  IoThread(UniqueFd epoll, UniqueFd wake, Duration spin) : epoll_(std::move(epoll)), wake_(std::move(wake)), spin_(spin) {}
  void run();
  enum class Reason { kEvent, kHangUp, kKick, kAgain };
  void call(uint64_t id, Reason reason) TCPX_EXCLUDES(handlers_mutex_);
  void kick(uint64_t id) TCPX_EXCLUDES(kicked_mutex_);
  void remove(int fd, uint64_t id) TCPX_EXCLUDES(handlers_mutex_);
  /// Swaps the kicked ids into the empty `kicked`. @return true when there are none and the next wait may sleep: from then on a
  /// kick wakes it.
  bool take_kicked(std::vector<uint64_t>& kicked, bool may_sleep) TCPX_EXCLUDES(kicked_mutex_);

  const UniqueFd epoll_;
  const UniqueFd wake_;
  const Duration spin_;
  std::atomic<bool> stop_{false};

  struct Entry {
    IoHandler* handler;
    bool is_in_again = false;
  };
  Mutex handlers_mutex_;  // not held while a handler runs
  std::unordered_map<uint64_t, Entry> handlers_ TCPX_GUARDED_BY(handlers_mutex_);
  uint64_t next_id_ TCPX_GUARDED_BY(handlers_mutex_) = 1;
  const IoHandler* running_ TCPX_GUARDED_BY(handlers_mutex_) = nullptr;
  int waiting_removers_ TCPX_GUARDED_BY(handlers_mutex_) = 0;
  CondVar handler_ended_;
  std::vector<uint64_t> again_;  // handlers that said kAgain, each once; the thread's own

  Mutex kicked_mutex_;
  std::vector<uint64_t> kicked_ TCPX_GUARDED_BY(kicked_mutex_);
  bool asleep_ TCPX_GUARDED_BY(kicked_mutex_) = false;  // the loop will not look at kicked_ before an event comes
  std::atomic<bool> any_kicked_{false};                 // a hint, so that spinning takes no lock

  std::thread thread_;
  std::atomic<std::thread::id> loop_thread_{};
};

/// Threads that share their connections. Held in shared_ptr by every comm and listener: the last one to close ends the threads,
/// so an idle process keeps none. Must not be let go by an I/O thread.
class IoPool {
 public:
  static Result<std::shared_ptr<IoPool>> create(uint32_t threads, Duration spin = Duration::zero(), const CoreSet& cores = {});
  /// Spreads registrations round robin.
  IoThread& next();
  /// For what is seldom busy and must not take a turn from what is.
  IoThread& any() { return *threads_.front(); }

 private:
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::atomic<uint32_t> next_{0};
};

}  // namespace tcpx::soft
