// Unpacker: gathers the fragments of a received message into its destination.
#pragma once

#include <cstdint>

#include "rx/rx_descriptor.h"
#include "tcpx/status.h"

namespace tcpx {

/// Names one submitted block; ascending per unpacker, never reused.
enum class UnpackTicket : uint64_t {};

/// One thread at a time.
class Unpacker {
 public:
  virtual ~Unpacker() = default;

  /// "kernel", "d2d" or "host"
  virtual const char* name() const = 0;

  /// Starts copying every fragment of `block` from its bounce pool into its destination; other bytes stay untouched. The block is
  /// checked already (rx_descriptor.h is the only maker of one) and may be reused at once; pool and destination must stay until
  /// the ticket is done.
  /// @return kExhausted when too many are in flight: query the oldest and try again. kCuda with the native code.
  virtual Result<UnpackTicket> submit(const DescriptorBlock& block) = 0;

  /// True when every byte of that ticket is in place and visible to the host and to kernels launched later. Tickets finish in
  /// order of submission. An error sticks to this unpacker.
  virtual Result<bool> query(UnpackTicket ticket) = 0;
};

}  // namespace tcpx
