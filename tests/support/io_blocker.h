// Handlers and descriptors for tests that need to control an I/O thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/timerfd.h>

#include <atomic>

#include "base/unique_fd.h"
#include "net/soft/io_thread.h"
#include "tests/support/ok.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

/// Never ready: not readable before it is armed, and never writable.
inline UniqueFd quiet_fd() {
  return UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
}

/// A handler that asks for no memory.
struct FrugalHandler : soft::IoHandler {
  void on_out_of_memory() noexcept override {}
};

/// Holds its thread up until it is released.
struct Blocker final : FrugalHandler {
  Blocker() = default;
  /// Holds up that thread of `pool`, from now on.
  explicit Blocker(soft::IoPool& pool, size_t thread = 0) {
    EXPECT_OK(pool.at(thread).add(fd.get(), *this, registration));
    EXPECT_TRUE(wait_until([this] { return entered.load(); }));
  }
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
  const UniqueFd fd = quiet_fd();
  soft::IoRegistration registration;  // last: removed before the rest goes
};

}  // namespace tcpx::testing
