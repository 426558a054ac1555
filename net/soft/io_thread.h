// Event loops that move bytes between sockets and memory: a few threads shared by all connections of the process.
//
// A handler is registered with one thread and runs only there. Events are edge-triggered: a handler continues until the socket
// would block, or returns kAgain to let others run in between. Any thread may `kick` a registration to have its handler run
// once more.
//
// A thread without work for its spin time sleeps in epoll_wait without a timeout: idle connections cost no processor time.
// While it is awake a kick costs no system call.
//
// The loop of a thread can be lent (IoLoop): then the turns of those who have borrowed it call the handlers, one turn at a time, and the
// thread rests until the one that watches the sockets gives it back.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/spin_time.h"
#include "base/unique_fd.h"
#include "net/net_plugin.h"
#include "net/soft/bindings.h"
#include "tcpx/status.h"

namespace tcpx::soft {

class IoHandler {
 public:
  enum class Next { kWait, kAgain };
  virtual ~IoHandler() = default;
  /// The descriptor became ready, or the registration was kicked. Must not block on the network, and must not wait for a thread
  /// that may be in IoRegistration::remove.
  virtual Next on_ready() = 0;
  /// The other end has sent its last byte, or the connection is broken, or its error queue has news (base/zero_copy.h); there may
  /// still be bytes to read. Called before on_ready, under the same rules.
  virtual void on_hang_up() {}
  /// One of the two above has thrown std::bad_alloc wherever it stood. Ends what this handler serves, without memory: what is half done
  /// must not be continued by a later call. Called under the same rules.
  virtual void on_out_of_memory() noexcept = 0;
};

class IoThread;

/// A descriptor's place in an event loop, filled by IoThread::add. Destruction removes it: after that the handler is not
/// running for any registration, and will not run again for this one. The descriptor stays open and must outlive this; so must
/// the thread.
class IoRegistration {
 public:
  IoRegistration() = default;
  IoRegistration(const IoRegistration&) = delete;
  IoRegistration& operator=(const IoRegistration&) = delete;
  ~IoRegistration() { remove(); }

  /// Any thread that knows the handler has run, or that created the registration; also during and after removal. Cheap; takes
  /// no lock that a handler holds.
  void kick() const noexcept;
  /// The owner only. Waits for a handler call in progress on another thread: do not call it while holding a lock that the
  /// handler takes. Does not wait for other handlers.
  void remove();

 private:
  friend class IoThread;
  IoThread* thread_ = nullptr;  // like fd_ and id_ constant once filled, so that kick needs no lock
  int fd_ = -1;
  uint64_t id_ = 0;
  bool removed_ = false;
};

class IoThread {
 public:
  /// @param spin time for which the thread polls, at most, after its last work before it sleeps (base/spin_time.h)
  static Result<std::unique_ptr<IoThread>> start(Duration spin = Duration::zero(), const CoreSet& cores = {});
  ~IoThread();

  /// Fills an empty `registration`. `handler` and `fd` must outlive it. The handler is called once soon, ready or not.
  Status add(int fd, IoHandler& handler, IoRegistration& registration) TCPX_EXCLUDES(handlers_mutex_);

  // Calls of those who borrow the loop, as IoLoop's. A handler that the thread is calling just then ends there.
  /// @return true: the caller watches the sockets in place of the thread until it calls `take_back`; false: somebody else does
  bool lend() TCPX_EXCLUDES(kicked_mutex_);
  void take_back() TCPX_EXCLUDES(kicked_mutex_);
  int fd() const { return epoll_.get(); }
  void attend() TCPX_EXCLUDES(kicked_mutex_);
  bool turn(bool readable) noexcept TCPX_EXCLUDES(loop_mutex_);
  void leave() TCPX_EXCLUDES(kicked_mutex_);

 private:
  friend class IoRegistration;
  IoThread(UniqueFd epoll, UniqueFd wake, Duration spin) : epoll_(std::move(epoll)), wake_(std::move(wake)), spin_(spin) {}
  void run();
  enum class Reason { kEvent, kHangUp, kKick, kAgain };
  void call(uint64_t id, Reason reason) noexcept TCPX_REQUIRES(loop_mutex_) TCPX_EXCLUDES(handlers_mutex_);
  void kick(uint64_t id) noexcept TCPX_EXCLUDES(kicked_mutex_);
  void call_all() noexcept TCPX_REQUIRES(loop_mutex_) TCPX_EXCLUDES(handlers_mutex_);
  void end_wait();
  void remove(int fd, uint64_t id) TCPX_EXCLUDES(handlers_mutex_);
  using Events = std::array<epoll_event, 64>;
  /// Calls the handlers of those events, and those that were kicked or wanted another turn.
  void handle(std::span<const epoll_event> events) noexcept TCPX_REQUIRES(loop_mutex_);
  /// True when some were, or are being called.
  bool has_more() const { return any_kicked_.load() || any_again_.load(); }
  void take_kicked() TCPX_REQUIRES(loop_mutex_) TCPX_EXCLUDES(kicked_mutex_);
  /// Returns when it is lent no more.
  void wait_while_lent() TCPX_EXCLUDES(kicked_mutex_);

  const UniqueFd epoll_;
  const UniqueFd wake_;
  SpinTime spin_;  // the thread's
  std::atomic<bool> stop_{false};

  struct Entry {
    IoHandler* handler;
    bool is_in_again = false;
  };
  Mutex handlers_mutex_;  // not held while a handler runs
  std::map<uint64_t, Entry> handlers_ TCPX_GUARDED_BY(handlers_mutex_);
  uint64_t next_id_ TCPX_GUARDED_BY(handlers_mutex_) = 1;
  const IoHandler* running_ TCPX_GUARDED_BY(handlers_mutex_) = nullptr;
  int waiting_removers_ TCPX_GUARDED_BY(handlers_mutex_) = 0;
  CondVar handler_ended_;

  Mutex loop_mutex_;                                          // held by who calls handlers
  std::vector<uint64_t> again_ TCPX_GUARDED_BY(loop_mutex_);  // handlers that returned kAgain, each once
  std::vector<uint64_t> kicked_now_ TCPX_GUARDED_BY(loop_mutex_), again_now_ TCPX_GUARDED_BY(loop_mutex_);  // reused
  bool calls_all_now_ TCPX_GUARDED_BY(loop_mutex_) = false;
  std::atomic<bool> any_again_{false};

  Mutex kicked_mutex_;
  std::vector<uint64_t> kicked_ TCPX_GUARDED_BY(kicked_mutex_);
  bool calls_all_ TCPX_GUARDED_BY(kicked_mutex_) = false;  // there was no memory for one of kicked_
  int attending_ TCPX_GUARDED_BY(kicked_mutex_) = 0;  // threads that make turns, and will look whether there is more
  bool told_ TCPX_GUARDED_BY(kicked_mutex_) = false;  // `wake_` was written since one attended
  std::atomic<bool> lent_{false};
  CondVar taken_back_;
  std::atomic<bool> any_kicked_{false};                 // a hint, so that spinning takes no lock

  std::thread thread_;
  std::atomic<std::thread::id> loop_thread_{};
};

/// Threads that share the connections. Held in shared_ptr by every comm, listener and borrower: the last one to close ends the
/// threads, so an idle process keeps none. Must not be released on an I/O thread.
class IoPool {
 public:
  static Result<std::shared_ptr<IoPool>> create(uint32_t threads, Duration spin = Duration::zero(), const CoreSet& cores = {});
  /// Numbers go round.
  IoThread& at(size_t number) { return *threads_[number % threads_.size()]; }
  size_t size() const { return threads_.size(); }
  /// For handlers that are seldom busy and must not take a turn from busy ones.
  IoThread& any() { return *threads_.front(); }
  /// Bytes of messages that these threads have to send, whatever the connection. Any thread.
  std::atomic<uint64_t>& bytes_to_send() { return bytes_to_send_; }
  /// The loop of its only thread; null: there are several.
  static std::unique_ptr<IoLoop> borrow(std::shared_ptr<IoPool> pool);

 private:
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::atomic<uint64_t> bytes_to_send_{0};
};

}  // namespace tcpx::soft
