// Placement of data sockets on I/O threads. A connection of several channels makes its comms of one direction on one thread, one
// after the other, so each thread that connects or accepts gives its sockets to all I/O threads in turn. One turn for all of the
// process would not do: of two connections made at the same time each gets every second place, and with that half of the threads
// (two H200s, loopback, eight sockets: reads of 64 MiB 15 GB/s instead of 22 to 24).
//
// A message in few chunks takes the first sockets of its comm. So each comm begins with another one of its threads: else, of 64
// comms with a socket on each of eight threads, two threads wrote messages of 4 MiB in chunks of 2 (16 GB/s instead of 23).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tcpx::soft {

enum class CommSide : uint8_t { kSends, kReceives };

/// The I/O threads of a comm's data sockets; those of a comm that nobody has placed are on the threads in turn.
struct SocketPlacement {
  size_t first = 0, sockets = SIZE_MAX;
  /// Number of the thread of socket number `i`, to be taken modulo that of the threads.
  size_t thread_of(size_t i) const { return first + (first / sockets + i) % sockets; }
};

/// For a comm of so many sockets, at least one, that the calling thread is making. Any thread.
inline SocketPlacement place_sockets(CommSide side, size_t sockets) {
  static std::array<std::atomic<size_t>, 2> begins{};  // where the next thread that makes comms begins
  thread_local std::array<size_t, 2> next{SIZE_MAX, SIZE_MAX};
  size_t& mine = next[static_cast<size_t>(side)];
  if (mine == SIZE_MAX) mine = begins[static_cast<size_t>(side)].fetch_add(sockets, std::memory_order_relaxed);
  const SocketPlacement placement{.first = mine, .sockets = sockets};
  mine += sockets;
  return placement;
}

}  // namespace tcpx::soft
