#include "endpoint/wakeable_epoll.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/socket_io.h"
#include "base/timespec.h"

namespace tcpx {

Status WakeableEpoll::open() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !event_) return system_error("create endpoint", errno);
  epoll_event wanted{.events = EPOLLIN, .data = {.u64 = 0}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_.get(), &wanted) != 0) return system_error("create endpoint", errno);
  return Status::ok();
}

void WakeableEpoll::watch(int fd, uint64_t tag, bool on) {
  epoll_event wanted{.events = EPOLLIN, .data = {.u64 = tag}};
  (void)::epoll_ctl(epoll_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &wanted);
}

std::span<const uint64_t> WakeableEpoll::readable(Tags& room) {
  std::array<epoll_event, std::tuple_size_v<Tags>> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  size_t taken = 0;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == 0) continue;  // a wake-up: left to the sleeping thread, which would miss it otherwise
    room[taken++] = events[i].data.u64;
  }
  return std::span(room).first(taken);
}

void WakeableEpoll::wait(Until until, std::optional<Duration> longest) {
  // Not epoll_wait, which knows only whole milliseconds.
  pollfd events{.fd = until == Until::kReadable ? epoll_.get() : event_.get(), .events = POLLIN, .revents = 0};
  const timespec pause = to_timespec(longest.value_or(Duration::zero()));
  (void)::ppoll(&events, 1, longest ? &pause : nullptr, nullptr);
}

// One system call, and only if some thread has called `wake`.
void WakeableEpoll::end_sleep() {
  unread_ |= !sleeping_.exchange(false);
  uint64_t wakes = 0;
  if (unread_ && ::read(event_.get(), &wakes, sizeof wakes) > 0) unread_ = false;
}

void WakeableEpoll::wake() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!sleeping_.load(std::memory_order_relaxed) || !sleeping_.exchange(false)) return;  // only one of many callers writes
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

}  // namespace tcpx
