// Host memory as a dma-buf, through /dev/udmabuf: where host memory stands in for a GPU's, it can be given to a NIC as that can.
#pragma once

#include <cstddef>

#include "base/memory_ops.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// True on a kernel with udmabuf, for those who may use it.
bool has_udmabuf();

/// Zeroed pages of which export_host_dmabuf knows. `bytes` is rounded up to whole pages.
Result<MemoryBuffer> allocate_exportable(size_t bytes);

/// @param pages of one allocation of allocate_exportable
/// @return kUnsupported: other memory, or the kernel refuses
Result<UniqueFd> export_host_dmabuf(const Pages& pages);

}  // namespace tcpx
