#include "net/soft/io_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/socket_io.h"

namespace tcpx::soft {
namespace {

constexpr uint64_t kWakeId = 0;

}  // namespace

void IoRegistration::kick() const {
  if (thread_ != nullptr) thread_->kick(id_);
}

void IoRegistration::remove() {
  if (thread_ == nullptr || removed_) return;
  thread_->remove(fd_, id_);
  removed_ = true;
}

Result<std::unique_ptr<IoThread>> IoThread::start() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("create epoll", errno);
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return system_error("create eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return system_error("watch eventfd", errno);
  std::unique_ptr<IoThread> thread(new IoThread(std::move(epoll), std::move(wake)));
  // Signals belong to the application's threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    thread->thread_ = std::thread([raw = thread.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return system_error("start I/O thread", error.code().value());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread->thread_.native_handle(), "tcpx-io");
  return thread;
}

IoThread::~IoThread() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  kick(kWakeId);
  thread_.join();
}

Status IoThread::add(int fd, IoHandler& handler, IoRegistration& registration) {
  const std::lock_guard lock(running_);
  const uint64_t id = next_id_++;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return system_error("watch socket", errno);
  handlers_.emplace(id, Entry{.handler = &handler});
  // Before the handler can run, because it may let others kick through it.
  registration.thread_ = this;
  registration.fd_ = fd;
  registration.id_ = id;
  kick(id);
  return Status::ok();
}

void IoThread::remove(int fd, uint64_t id) {
  const std::lock_guard lock(running_);
  handlers_.erase(id);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void IoThread::kick(uint64_t id) {
  bool was_empty;
  {
    MutexLock lock(kicked_mutex_);
    was_empty = kicked_.empty();
    kicked_.push_back(id);
  }
  if (!was_empty) return;  // the loop has been woken and has not looked yet
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void IoThread::call(uint64_t id) {
  const std::lock_guard lock(running_);
  auto found = handlers_.find(id);
  if (found == handlers_.end() || found->second.handler->on_ready() == IoHandler::Next::kWait) return;
  found = handlers_.find(id);  // the handler may have added and removed others
  if (found == handlers_.end() || found->second.is_in_again) return;
  found->second.is_in_again = true;
  again_.push_back(id);
}

void IoThread::call_again(std::vector<uint64_t>& ids) {
  ids.swap(again_);
  for (const uint64_t id : ids) {
    {
      const std::lock_guard lock(running_);
      const auto found = handlers_.find(id);
      if (found == handlers_.end()) continue;
      found->second.is_in_again = false;
    }
    call(id);
  }
  ids.clear();
}

void IoThread::run() {
  std::array<epoll_event, 64> events;
  std::vector<uint64_t> kicked, again;
  while (!stop_.load()) {
    const int timeout = again_.empty() ? -1 : 0;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    if (count < 0 && errno != EINTR) {
      log(LogLevel::kError, "tcpx-soft: epoll_wait: ", system_error("wait", errno).detail());
      return;
    }
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[static_cast<size_t>(i)].data.u64;
      if (id != kWakeId) {
        call(id);
        continue;
      }
      uint64_t ignored;
      [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &ignored, sizeof ignored);
      {
        MutexLock lock(kicked_mutex_);
        kicked.swap(kicked_);
      }
      for (const uint64_t kicked_id : kicked) call(kicked_id);
      kicked.clear();
    }
    call_again(again);
  }
}

Result<std::shared_ptr<IoPool>> IoPool::create(uint32_t threads) {
  auto pool = std::make_shared<IoPool>();
  for (uint32_t i = 0; i < threads; ++i) {
    auto thread = IoThread::start();
    if (!thread.is_ok()) return thread.status();
    pool->threads_.push_back(std::move(*thread));
  }
  return pool;
}

IoThread& IoPool::next() {
  return *threads_[next_.fetch_add(1, std::memory_order_relaxed) % threads_.size()];
}

}  // namespace tcpx::soft
