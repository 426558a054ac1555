// FlippedWire: one bit of what the TCP sockets of this process receive, changed between the kernel and the reader, as a proxy on the
// way would change it. flipped_wire.cc puts itself in place of the C library's recv and recvmsg.
#pragma once

#include <cstdint>

namespace tcpx::testing {

class FlippedWire {
 public:
  /// From now on bytes are counted, and a bit of one of them is flipped, once. @param after bytes before that one
  static void arm_byte(uint64_t after, uint64_t random);
  /// The same of reads that get something: a bit anywhere in what one of them got. Short reads are hit as often as long ones.
  static void arm_read(uint64_t after, uint64_t random);
  /// @return true: a bit has been flipped since it was armed
  static bool disarm();
  static bool has_flipped();
};

}  // namespace tcpx::testing
