// Handlers and descriptors for tests that need to control an I/O thread.
#pragma once

#include <sys/timerfd.h>

#include <atomic>

#include "base/unique_fd.h"
#include "net/soft/io_thread.h"

namespace tcpx::testing {

/// Never ready: not readable before it is armed, and never writable.
inline UniqueFd quiet_fd() {
  return UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
}

/// Holds its thread up until it is released.
struct Blocker final : soft::IoHandler {
  ~Blocker() override { release(); }
  Next on_ready() override {
    entered = true;
    released.wait(false);
    return Next::kWait;
  }
  void release() {
    released = true;
    released.notify_all();
  }
  std::atomic<bool> entered = false, released = false;
};

}  // namespace tcpx::testing
