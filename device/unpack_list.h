// Converts descriptor blocks to the input of one launch: a list of fragments with absolute destinations, and its shape.
#pragma once

#include <cstddef>
#include <span>

#include "device/unpack_launch.h"
#include "rx/rx_descriptor.h"

namespace tcpx {

/// Blocks that go out as one launch.
struct PoolRun {
  std::span<const DescriptorBlock> blocks;
  const std::byte* pool = nullptr;  ///< of all blocks that have fragments; nullptr when none has
};

/// The longest prefix of `blocks` with one pool, as a launch has only one.
PoolRun leading_run(std::span<const DescriptorBlock> blocks);

/// Writes the fragments of all blocks of `run`, in order. @return their shape
/// @param list room for all of them.
/// @param memory kind of memory of run.pool.
UnpackShape write_list(const PoolRun& run, KernelFragment* list, PoolMemory memory);

}  // namespace tcpx
