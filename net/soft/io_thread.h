// Event loops that move bytes between sockets and memory: a few threads shared by all connections of the process.
//
// A handler is registered with one thread and runs only there. Events are edge-triggered: a handler goes on until the socket
// would block, or says kAgain to let others run in between. Anybody may `kick` a registration to have its handler run once more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx::soft {

class IoHandler {
 public:
  enum class Next { kWait, kAgain };
  virtual ~IoHandler() = default;
  /// The descriptor became ready, or somebody kicked. Must not block on the network, and must not wait for a thread that may be
  /// in IoRegistration::remove.
  virtual Next on_ready() = 0;
};

class IoThread;

/// A descriptor's place in an event loop, filled by IoThread::add. Destruction removes it: after that the handler is not running
/// and will not run again. The descriptor stays open and must outlive this; so must the thread.
class IoRegistration {
 public:
  IoRegistration() = default;
  IoRegistration(const IoRegistration&) = delete;
  IoRegistration& operator=(const IoRegistration&) = delete;
  ~IoRegistration() { remove(); }

  /// Any thread that knows the handler has run, or that made the registration; also while and after it is removed. Cheap; takes
  /// no lock that a handler holds.
  void kick() const;
  /// The owner only. Waits for a handler call in progress on another thread: do not call it with a lock that the handler takes.
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
  static Result<std::unique_ptr<IoThread>> start();
  ~IoThread();

  /// Fills an empty `registration`. `handler` and `fd` must outlive it. The handler is called once soon, ready or not.
  Status add(int fd, IoHandler& handler, IoRegistration& registration);

 private:
  friend class IoRegistration;
  IoThread(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void run();
  void call(uint64_t id);
  /// Calls those that said kAgain before now. `ids` is room to work in.
  void call_again(std::vector<uint64_t>& ids);
  void kick(uint64_t id);
  void remove(int fd, uint64_t id);

  const UniqueFd epoll_;
  const UniqueFd wake_;
  std::atomic<bool> stop_{false};

  // Held while a handler runs, so that `remove` knows when it has ended. Recursive because handlers register and remove others;
  // that is also why clang's lock annotations do not fit here.
  std::recursive_mutex running_;
  struct Entry {
    IoHandler* handler;
    bool is_in_again = false;
  };
  std::unordered_map<uint64_t, Entry> handlers_;  // guarded by running_
  uint64_t next_id_ = 1;                          // guarded by running_
  std::vector<uint64_t> again_;                   // handlers that said kAgain, each once; the thread's own

  Mutex kicked_mutex_;
  std::vector<uint64_t> kicked_ TCPX_GUARDED_BY(kicked_mutex_);

  std::thread thread_;
};

/// The threads of a process. Held in shared_ptr by every comm and listener: the last one to close ends the threads, so an idle
/// process keeps none. Must not be let go by an I/O thread.
class IoPool {
 public:
  static Result<std::shared_ptr<IoPool>> create(uint32_t threads);
  /// Spreads registrations round robin.
  IoThread& next();

 private:
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::atomic<uint32_t> next_{0};
};

}  // namespace tcpx::soft
