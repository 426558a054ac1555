#include "net/soft/io_thread.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/own_thread.h"
#include "base/socket_io.h"

namespace tcpx::soft {
namespace {

constexpr uint64_t kWakeId = 0;

}  // namespace

void IoRegistration::kick() const noexcept {
  if (thread_ != nullptr) thread_->kick(id_);
}

void IoRegistration::remove() {
  if (thread_ == nullptr || removed_) return;
  thread_->remove(fd_, id_);
  removed_ = true;
}

Result<std::unique_ptr<IoThread>> IoThread::start(Duration spin, const CoreSet& cores) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("create epoll", errno);
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return system_error("create eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // each write is an event of its own, so the count need not be read
  event.data.u64 = kWakeId;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return system_error("watch eventfd", errno);
  std::unique_ptr<IoThread> thread(new IoThread(std::move(epoll), std::move(wake), spin));
  TCPX_ASSIGN_OR_RETURN(thread->thread_, start_thread("tcpx-io", [raw = thread.get()] { raw->run(); }));
  TCPX_RETURN_IF_ERROR(bind_thread(thread->thread_.native_handle(), cores));
  return thread;
}

IoThread::~IoThread() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  kick(kWakeId);
  {
    MutexLock lock(kicked_mutex_);
    taken_back_.notify_all();
  }
  thread_.join();
}

Status IoThread::add(int fd, IoHandler& handler, IoRegistration& registration) {
  uint64_t id;
  {
    // The event may come at once, but the loop cannot look its handler up before the registration is complete.
    MutexLock lock(handlers_mutex_);
    id = next_id_++;
    const auto entry = handlers_.emplace(id, Entry{.handler = &handler}).first;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      const int error = errno;
      handlers_.erase(entry);
      return system_error("watch socket", error);
    }
    registration.thread_ = this;
    registration.fd_ = fd;
    registration.id_ = id;
  }
  kick(id);
  return Status::ok();
}

void IoThread::remove(int fd, uint64_t id) {
  MutexLock lock(handlers_mutex_);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const auto found = handlers_.find(id);
  const IoHandler* handler = found->second.handler;
  handlers_.erase(found);
  if (loop_thread_.load() == std::this_thread::get_id()) return;  // a handler removes itself or another one of its thread
  ++waiting_removers_;
  while (running_ == handler) handler_ended_.wait(handlers_mutex_);
  --waiting_removers_;
}

// Without memory for its number all are called: a kick too many does no harm.
void IoThread::kick(uint64_t id) noexcept {
  bool wake;
  {
    MutexLock lock(kicked_mutex_);
    try {
      kicked_.push_back(id);
    } catch (const std::bad_alloc&) {
      calls_all_ = true;
    }
    any_kicked_.store(true, std::memory_order_release);
    wake = attending_ == 0 && !std::exchange(told_, true);
  }
  if (wake) end_wait();
}

void IoThread::end_wait() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void IoThread::take_kicked() {
  if (!any_kicked_.load(std::memory_order_acquire)) return;
  MutexLock lock(kicked_mutex_);
  any_kicked_.store(false, std::memory_order_relaxed);
  kicked_now_.swap(kicked_);
  calls_all_now_ = std::exchange(calls_all_, false);
}

void IoThread::attend() {
  MutexLock lock(kicked_mutex_);
  ++attending_;
  told_ = false;
}

void IoThread::leave() {
  bool wake;
  {
    MutexLock lock(kicked_mutex_);
    const bool more = !kicked_.empty() || calls_all_ || any_again_.load();
    wake = --attending_ == 0 && more && !std::exchange(told_, true);
  }
  if (wake) end_wait();
}

void IoThread::call(uint64_t id, Reason reason) noexcept {
  IoHandler* handler;
  {
    MutexLock lock(handlers_mutex_);
    const auto found = handlers_.find(id);
    if (found == handlers_.end()) return;
    if (reason == Reason::kAgain) found->second.is_in_again = false;
    handler = found->second.handler;
    running_ = handler;
  }
  bool again = false;
  try {
    if (reason == Reason::kHangUp) handler->on_hang_up();
    again = handler->on_ready() == IoHandler::Next::kAgain;
  } catch (const std::bad_alloc&) {
    handler->on_out_of_memory();
  }
  MutexLock lock(handlers_mutex_);
  running_ = nullptr;
  if (waiting_removers_ > 0) handler_ended_.notify_all();
  if (!again) return;
  const auto found = handlers_.find(id);  // it may have been removed, and others added
  if (found == handlers_.end() || found->second.is_in_again) return;
  try {
    again_.push_back(id);
    found->second.is_in_again = true;
  } catch (const std::bad_alloc&) {
    kick(id);
  }
}

void IoThread::call_all() noexcept {
  for (uint64_t id = kWakeId;; call(id, Reason::kKick)) {
    MutexLock lock(handlers_mutex_);
    const auto next = handlers_.upper_bound(id);  // handlers come and go between the calls
    if (next == handlers_.end()) return;
    id = next->first;
  }
}

void IoThread::handle(std::span<const epoll_event> events) noexcept {
  again_now_.swap(again_);
  take_kicked();
  loop_thread_.store(std::this_thread::get_id());
  for (const epoll_event& event : events) {
    const bool hung_up = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (event.data.u64 != kWakeId) call(event.data.u64, hung_up ? Reason::kHangUp : Reason::kEvent);
  }
  for (const uint64_t id : kicked_now_) call(id, Reason::kKick);
  if (std::exchange(calls_all_now_, false)) call_all();
  // Last, and without those that have just returned kAgain: data that has arrived for others goes first, while it is in the
  // cache.
  for (const uint64_t id : again_now_) call(id, Reason::kAgain);
  kicked_now_.clear();
  again_now_.clear();
  any_again_.store(!again_.empty());
  loop_thread_.store({});
}

bool IoThread::turn(bool readable) noexcept {
  if (!readable && !has_more()) return false;
  if (!loop_mutex_.try_lock()) return false;  // somebody else makes one
  Events events;
  const int count = readable ? ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0) : 0;
  const bool found = count > 0 || has_more();
  if (found) handle(std::span(events).first(static_cast<size_t>(std::max(count, 0))));
  loop_mutex_.unlock();
  return found;
}

bool IoThread::lend() {
  if (lent_.exchange(true)) return false;
  kick(kWakeId);
  return true;
}

void IoThread::take_back() {
  MutexLock lock(kicked_mutex_);
  lent_.store(false);
  taken_back_.notify_all();
}

void IoThread::wait_while_lent() {
  leave();
  MutexLock lock(kicked_mutex_);
  while (lent_.load() && !stop_.load()) taken_back_.wait(kicked_mutex_);
  ++attending_;
  told_ = false;
}

void IoThread::run() {
  Events events;
  TimePoint sleep_at{};
  const bool spins = spin_.longest() > Duration::zero();
  attend();
  while (!stop_.load()) {
    if (lent_.load()) wait_while_lent();
    const bool sleeps = !has_more() && (!spins || Clock::steady().now() >= sleep_at);
    if (sleeps) leave();
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), sleeps ? -1 : 0);
    if (sleeps) attend();
    if (count < 0 && errno != EINTR) {
      log(LogLevel::kError, "tcpx-soft: ", system_error("epoll_wait", errno).to_string());
      return;
    }
    if (count <= 0 && !has_more()) continue;
    const TimePoint found_at = spins ? Clock::steady().now() : TimePoint();
    {
      MutexLock lock(loop_mutex_);
      handle(std::span(events).first(static_cast<size_t>(std::max(count, 0))));
    }
    if (spins) {
      const TimePoint now = Clock::steady().now();
      sleep_at = now + spin_.after(found_at, now);
    }
  }
}

namespace {

class BorrowedLoop final : public IoLoop {
 public:
  explicit BorrowedLoop(std::shared_ptr<IoPool> pool) : pool_(std::move(pool)), watches_(thread().lend()) {}
  ~BorrowedLoop() override {
    if (watches_) thread().take_back();
  }
  int fd() const override { return watches_ ? thread().fd() : -1; }
  void attend() override { thread().attend(); }
  bool turn(bool readable) override { return thread().turn(readable); }
  void leave() override { thread().leave(); }

 private:
  IoThread& thread() const { return pool_->any(); }
  const std::shared_ptr<IoPool> pool_;
  const bool watches_;
};

}  // namespace

std::unique_ptr<IoLoop> IoPool::borrow(std::shared_ptr<IoPool> pool) {
  if (pool->threads_.size() != 1) return nullptr;
  return std::make_unique<BorrowedLoop>(std::move(pool));
}

Result<std::shared_ptr<IoPool>> IoPool::create(uint32_t threads, Duration spin, const CoreSet& cores) {
  auto pool = std::make_shared<IoPool>();
  for (uint32_t i = 0; i < threads; ++i) {
    TCPX_ASSIGN_OR_RETURN(auto thread, IoThread::start(spin, cores));
    pool->threads_.push_back(std::move(thread));
  }
  return pool;
}

}  // namespace tcpx::soft
