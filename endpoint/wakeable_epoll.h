// WakeableEpoll: tells the progress thread which sockets are readable, and lets it sleep until one is. Any thread can end the sleep.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

class WakeableEpoll {
 public:
  /// Call first. @return kSystem
  Status open();

  /// Starts or stops watching a socket. @param tag not 0; its name in `readable`
  void watch(int fd, uint64_t tag, bool on);
  using Tags = std::array<uint64_t, 64>;
  /// @return tags of the sockets that can be read now, stored in `room`. Does not wait.
  std::span<const uint64_t> readable(Tags& room);

  enum class Until : uint8_t {
    kReadable,  ///< a socket can be read, or `wake`
    kWoken,     ///< `wake`
  };
  /// Sleeps until one of these happens, or `longest` has passed; may return early. One thread at a time.
  /// @param longest nullopt: for ever
  /// @param has_work checked once `wake` takes effect, so a thread that makes it true and then calls `wake` is not missed
  /// @return false: it was true, and nobody slept
  template <class HasWork>
  bool sleep(Until until, std::optional<Duration> longest, HasWork has_work) {
    // Pairs with the fence in `wake`. A submitter reads `sleeping_` after it has stored its work, and this thread reads the work after
    // it has stored `sleeping_`, so at least one of the two sees the other's store.
    sleeping_.store(true, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool sleeps = !has_work();
    if (sleeps) wait(until, longest);
    end_sleep();
    return sleeps;
  }
  /// Any thread. Makes no system call when nobody sleeps.
  void wake();

 private:
  void wait(Until until, std::optional<Duration> longest);
  void end_sleep();

  UniqueFd epoll_, event_;
  std::atomic<bool> sleeping_{false};
  bool unread_ = false;  // `wake` has written to `event_`, or is about to
};

}  // namespace tcpx
