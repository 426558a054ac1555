// The kernel's netlink family "netdev": which receive queues an interface has, and dma-bufs bound to them.
//
// A dma-buf that is bound to receive queues is the pool that the NIC puts payload into; one that is bound for sending is memory
// that it reads from. A binding lives as long as the netlink socket that made it: closing it unbinds, and so does the end of
// the process. The descriptor of the dma-buf may be closed after the bind.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/netlink.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

struct ReceiveQueue {
  uint32_t index = 0;
  std::optional<uint32_t> dmabuf_id;  ///< what is bound to it; nullopt: host memory
};

/// The queue to bind next: the last without a binding. nullopt when that is queue 0, which all other packets need, or none.
std::optional<uint32_t> spare_queue(std::span<const ReceiveQueue> queues);

/// A dma-buf that is bound to a NIC.
struct BoundDmabuf {
  uint32_t id = 0;  ///< of the binding: what Netdev tells
  uint64_t bytes = 0;
};

/// @return kNotFound: no such interface in this network namespace
Result<uint32_t> interface_index(const std::string& interface);

/// Its destruction ends the bindings that it made. One thread at a time.
class Netdev {
 public:
  /// @return kUnsupported: this kernel has no such family, as before 6.3
  static Result<Netdev> open();
  static Result<Netdev> over(NetlinkSocket socket);

  /// The receive queues of an interface that is up.
  Result<std::vector<ReceiveQueue>> receive_queues(uint32_t interface);

  /// Binds a dma-buf, whose size is a multiple of the page size, to receive queues. Needs CAP_NET_ADMIN over the network
  /// namespace. Packets of these queues may be lost meanwhile, which TCP repairs.
  /// @return its id, which is in the records of recvmsg. kUnsupported: the kernel, the driver or its settings cannot; the words
  /// say what is missing. kExhausted: something is bound to one of the queues already
  Result<uint32_t> bind_receive(uint32_t interface, std::span<const uint32_t> queues, int dmabuf);
  /// Binds a dma-buf for sending over an interface. Needs no privilege.
  /// @return its id, which sendmsg is told
  Result<uint32_t> bind_send(uint32_t interface, int dmabuf);

 private:
  explicit Netdev(GenericFamily family) : family_(std::move(family)) {}
  Result<uint32_t> bind(uint8_t command, const char* operation, const Bytes& question);

  GenericFamily family_;
};

}  // namespace tcpx::devmem
