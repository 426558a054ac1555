// SocketPlacement: which I/O threads serve the data sockets of a comm. A connection of several channels has a comm over each device, and
// should have all threads at work in each direction. Taking the next thread for each socket as it comes does not do that: of two
// connections made at the same time one gets half of the threads, and each about two thirds of its rate (two H200s, loopback, four
// devices: reads of 64 MiB 15 GB/s, and 22 to 24 this way).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace tcpx::soft {

/// One thread at a time.
class SocketPlacement {
 public:
  enum Side : uint8_t { kSends, kReceives };

  /// For the next comm over a device: number of the thread for its first socket, to be taken modulo that of the threads. The next
  /// socket has the next thread.
  /// @param devices that are used side by side. @param device 0 ... devices - 1. @param sockets of the comm
  size_t first_thread(Side side, size_t device, size_t devices, size_t sockets) {
    return (comms_[{side, device}]++ * devices + device) * sockets;
  }

 private:
  std::map<std::pair<Side, size_t>, size_t> comms_;  // made so far
};

}  // namespace tcpx::soft
