// EventSignal: a descriptor that becomes readable when something has happened, for applications that wait in poll, select or epoll.
// Until somebody asks for it there is none, and to raise it costs a load.
//
// No event is lost when whoever waits reads the descriptor first and looks for events afterwards: one that comes in between has
// raised it again.
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
  /// The descriptor, the same every time and this object's; reading it does not block. Readable at first, for what has happened
  /// before. One thread at a time, and not while an event becomes visible, which may then not see the descriptor.
  /// @return kSystem: none is left
  Result<int> open() {
    if (!event_) {
      event_ = UniqueFd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!event_) return system_error("create event descriptor", errno);
      shown_.store(event_.get(), std::memory_order_relaxed);
    }
    return event_.get();
  }

  /// Something has happened that can be seen already. Any thread.
  void raise() const {
    const int fd = shown_.load(std::memory_order_relaxed);
    if (fd < 0) return;
    const uint64_t one = 1;
    (void)!::write(fd, &one, sizeof one);  // fails only when it has been raised 2^64 times, and so is readable
  }

 private:
  UniqueFd event_;
  std::atomic<int> shown_{-1};  // the same, for threads that raise it
};

}  // namespace tcpx
