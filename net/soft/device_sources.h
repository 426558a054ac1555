// Memory that a NIC sends from without a copy (net/devmem).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/memory_ops.h"
#include "net/devmem/netdev.h"
#include "net/devmem/socket_calls.h"
#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx::soft {

/// Pages that are bound to a NIC for sending, as long as this lives.
struct BoundSource {
  devmem::BoundDmabuf dmabuf;
  const std::byte* begin = nullptr;   ///< of the dma-buf
  std::shared_ptr<const void> keeps;  ///< the binding
};

/// A page of such memory, for one who shows that it can be sent.
struct BoundPage {
  devmem::BoundDmabuf dmabuf;
  uint64_t off = 0;                   ///< in the dma-buf
  std::shared_ptr<const void> keeps;  ///< its end gives the page back
};

/// The NIC by which a connection sends. Thread-safe.
class DeviceSources {
 public:
  virtual ~DeviceSources() = default;
  /// @return kUnsupported with the reason, which is logged: these bytes have to be copied
  virtual Result<std::shared_ptr<const BoundSource>> bind(const Pages& pages) = 0;
  /// A free page of the GPU's memory, which holds `content` now. @return kUnsupported with the reason, which is logged: the NIC cannot
  /// send from there; kExhausted: all are in use
  virtual Result<BoundPage> page(std::span<const std::byte, kPageBytes> content) = 0;
  virtual devmem::SocketCalls& calls() = 0;
};

}  // namespace tcpx::soft
