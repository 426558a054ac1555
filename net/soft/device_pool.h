// A bounce pool in device memory into which a NIC puts payload (net/devmem).
//
//   | bound to the NIC: it chooses the pages, and gets each back by its token | pages of the PagePool |
//
// A message takes pages for all of its bytes, as it does of any pool, though most of its bytes never lie there. So a byte that came in host
// memory has its place, and so has every byte of a message with more fragments than a list holds. And the number of pages bounds what is
// received and not consumed, and with it the tokens that are away: more of them than the NIC has pages would stall all of its connections.
#pragma once

#include <memory>

#include "base/memory_ops.h"
#include "net/devmem/netdev.h"
#include "net/devmem/queue_binding.h"
#include "net/devmem/socket_calls.h"
#include "net/soft/page_pool.h"

namespace tcpx::soft {

struct DevicePool {
  int gpu = 0;
  std::shared_ptr<PagePool> pages;  ///< their base is that of the bound part
  devmem::BoundDmabuf bound;        ///< PagePool::front_bytes()
  devmem::SocketCalls& calls;
  std::unique_ptr<CopyLane> copies;               ///< any thread
  std::shared_ptr<devmem::QueueBinding> binding;  ///< must not end before the last connection
};

}  // namespace tcpx::soft
