// WakeableEpoll: sockets that become readable, and the sleep of the one thread that waits for that, which any thread ends.
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
  /// Before anything else. kSystem.
  Status open();

  /// Watches a socket, or does so no longer. @param tag not 0; what `readable` calls it
  void watch(int fd, uint64_t tag, bool on);
  using Tags = std::array<uint64_t, 64>;
  /// Sockets that can be read now, at the front of `room`. Does not wait.
  std::span<const uint64_t> readable(Tags& room);

  /// Sleeps until a socket can be read, somebody calls `wake`, or so long; may return early. One thread at a time.
  /// @param longest nullopt: for ever
  /// @param has_work asked once more when `wake` works already: a thread that makes it true and then calls `wake` is not missed
  template <class HasWork>
  void sleep(std::optional<Duration> longest, HasWork has_work) {
    // A submitter looks at `sleeping_` after it has put its work there, this looks at the work after it has said that it sleeps:
    // one of the two sees the other.
    sleeping_.store(true, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!has_work()) wait(longest);
    sleeping_.store(false, std::memory_order_relaxed);
  }
  /// Any thread. Costs little when nobody sleeps.
  void wake();

 private:
  void wait(std::optional<Duration> longest);

  UniqueFd epoll_, event_;
  std::atomic<bool> sleeping_{false};
};

}  // namespace tcpx
