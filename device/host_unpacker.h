// Unpacks on the host, whatever the memory: through MemoryOps only, so it is right for a pool that the host cannot read and for
// destinations on a GPU, and it is all there is on a machine without one. What the host cannot touch passes through 1 MiB of
// pinned staging memory per direction, and fragments that lie near each other in the pool are fetched by one copy.
#pragma once

#include <memory>

#include "base/memory_ops.h"
#include "rx/unpacker.h"

namespace tcpx {

/// submit copies everything before it returns, so a ticket is done at once and kExhausted never happens.
/// @param memory must outlive the unpacker.
/// @return kInvalidArgument for no such device, or what memory says.
Result<std::unique_ptr<Unpacker>> make_host_unpacker(int device, MemoryOps& memory);

}  // namespace tcpx
