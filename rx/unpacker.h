// Unpacker: gathers the fragments of a received message into its destination.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rx/rx_descriptor.h"
#include "tcpx/status.h"

namespace tcpx {

/// Identifies one submit; ascending per unpacker, never reused.
enum class UnpackTicket : uint64_t {};

/// Most blocks in one submit: as many as one comm can have in flight.
inline constexpr size_t kMaxBatchBlocks = kQueueDepth;

/// One thread at a time.
class Unpacker {
 public:
  virtual ~Unpacker() = default;

  /// "kernel", "d2d" or "host"
  virtual const char* name() const = 0;

  /// Starts copying every fragment of every block from its bounce pool into its destination; other bytes stay untouched. Blocks
  /// of different requests go out together because many small launches cost more than one large one. The blocks are checked
  /// already (only rx_descriptor.h makes them) and may be reused at once; pools and destinations must stay until the ticket is
  /// done. Destinations must not overlap each other.
  /// @param blocks 1 ... kMaxBatchBlocks; blocks without fragments are allowed.
  /// @return one ticket for all of them. kExhausted, before anything is started, when too much is in flight: query the oldest
  ///         ticket and try again. kInvalidArgument for a bad number of blocks. kCuda with the native code. After an error
  ///         no block is being copied any more.
  virtual Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) = 0;
  Result<UnpackTicket> submit(const DescriptorBlock& block) { return submit(std::span(&block, 1)); }

  /// True when every byte of that ticket is in place and visible to the host and to kernels launched later. Tickets finish in
  /// order of submission. An error sticks to this unpacker.
  virtual Result<bool> query(UnpackTicket ticket) = 0;
};

}  // namespace tcpx
