// The metadata queue of a receive comm: 16 scatter lists in memory that the host and kernels share, and the handle in device
// memory through which NCCL's kernel finds them.
#pragma once

#include <cstdint>
#include <span>

#include "base/memory_ops.h"
#include "net/abi/nccl_net_common.h"
#include "net/abi/tcpx_request.h"
#include "tcpx/status.h"

namespace tcpx::soft {

class UnpackQueue {
 public:
  static Result<UnpackQueue> create(MemoryOps& memory, int device, std::byte* bounce_device_base);

  /// Opens the slot for the message `sequence`: writes the location of its list into the request, and clears the count of an
  /// earlier message.
  void open_slot(uint64_t sequence, abi::TcpxRequest& request);
  /// The list of the message `sequence`, to be written between open_slot and publish.
  std::span<Fragment, kMaxFragments> list(uint64_t sequence) {
    return std::span<Fragment, kMaxFragments>(meta().mem[sequence % kQueueDepth]);
  }
  /// Publishes the first `count` fragments of the list. The payload must be in place already.
  void publish(uint64_t sequence, size_t count, abi::TcpxRequest& request);

  abi::NetDeviceHandle device_handle() const;

 private:
  UnpackQueue(MemoryBuffer meta, MemoryBuffer handle) : meta_(std::move(meta)), handle_(std::move(handle)) {}
  abi::NetUnpackMeta& meta() { return *reinterpret_cast<abi::NetUnpackMeta*>(meta_.host()); }

  MemoryBuffer meta_;
  MemoryBuffer handle_;
};

}  // namespace tcpx::soft
