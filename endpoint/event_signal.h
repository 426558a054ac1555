// EventSignal: a descriptor that becomes readable when something has happened, for applications that wait in poll, select or epoll.
// The descriptor is created at the first `open`; until then `raise` costs one load.
//
// An application loses no event if it reads the descriptor first and then looks for events: an event in between raises it again.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/socket_io.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

class EventSignal {
 public:
  /// The descriptor: always the same, owned by this object, non-blocking, readable at first for earlier events. One thread at a time,
  /// and not while another thread makes an event visible, which might then not raise the descriptor.
  /// @return kSystem: no descriptor is left
  Result<int> open() {
    if (!event_) {
      event_ = UniqueFd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!event_) return system_error("create event descriptor", errno);
      shown_.store(event_.get(), std::memory_order_relaxed);
    }
    return event_.get();
  }

  /// Call after the event has become visible. Any thread.
  void raise() const {
    const int fd = shown_.load(std::memory_order_relaxed);
    if (fd < 0) return;
    const uint64_t one = 1;
    (void)!::write(fd, &one, sizeof one);  // fails only after 2^64 raises, when it is readable anyway
  }

 private:
  UniqueFd event_;
  std::atomic<int> shown_{-1};  // `event_`, for the threads that raise it
};

}  // namespace tcpx
