// Placement of data sockets on I/O threads. A connection of several channels makes its comms of one direction on one thread, one
// after the other, so each thread that connects or accepts gives its sockets to all I/O threads in turn. One turn for all of the
// process would not do: of two connections made at the same time each gets every second place, and with that half of the threads
// (two H200s, loopback, eight sockets: reads of 64 MiB 15 GB/s instead of 22 to 24).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tcpx::soft {

enum class CommSide : uint8_t { kSends, kReceives };

/// Number of the I/O thread for the first socket of a comm that the calling thread is making, to be taken modulo that of the
/// threads. The next socket has the next thread. Any thread.
inline size_t first_thread(CommSide side, size_t sockets) {
  static std::array<std::atomic<size_t>, 2> begins{};  // where the next thread that makes comms begins
  thread_local std::array<size_t, 2> next{SIZE_MAX, SIZE_MAX};
  size_t& mine = next[static_cast<size_t>(side)];
  if (mine == SIZE_MAX) mine = begins[static_cast<size_t>(side)].fetch_add(sockets, std::memory_order_relaxed);
  const size_t first = mine;
  mine += sockets;
  return first;
}

}  // namespace tcpx::soft
