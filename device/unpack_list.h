// From descriptor blocks to what one launch reads: a list of fragments with absolute destinations, and its shape.
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

/// As many blocks from the front of `blocks` as have the same pool, which a launch has one of.
PoolRun leading_run(std::span<const DescriptorBlock> blocks);

/// Writes the fragments of all blocks of `run`, in order, and tells their shape.
/// @param list room for all of them.
/// @param memory where run.pool lies.
UnpackShape write_list(const PoolRun& run, KernelFragment* list, PoolMemory memory);

}  // namespace tcpx
