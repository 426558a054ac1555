// Unpacks on the host, whatever the memory: through MemoryOps only, so it works for a pool that the host cannot read and for
// destinations on a GPU, and it is the only unpacker on a machine without one. Memory that the host cannot access is staged
// through 1 MiB of pinned memory per direction, and fragments close to each other in the pool are fetched by one copy.
#pragma once

#include <memory>

#include "base/memory_ops.h"
#include "rx/unpacker.h"

namespace tcpx {

/// submit copies everything before it returns, so a ticket is done at once and kExhausted never happens.
/// @param memory must outlive the unpacker.
/// @return kInvalidArgument for no such device, or the error of `memory`.
Result<std::unique_ptr<Unpacker>> make_host_unpacker(int device, MemoryOps& memory);

}  // namespace tcpx
