// Binds dma-bufs by tcpx_devmemd, which has CAP_NET_ADMIN in the place of this process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "net/devmem/queue_binding.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

/// As bind_here, by the broker that listens at `socket`, a path (UCCL_TCPX_DEVMEM_SOCKET).
/// @param dmabuf `bytes` long; may be closed after that
/// @return kPeerGone: no broker listens there; the broker's refusal; kTimeout: it does not answer for 30 s; kInvalidArgument: not a path
Result<std::shared_ptr<QueueBinding>> bind_by_broker(const std::string& socket, const std::string& interface, int dmabuf,
                                                     uint64_t bytes);

}  // namespace tcpx::devmem
