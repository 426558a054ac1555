#include "net/soft/unpack_queue.h"

#include <algorithm>
#include <atomic>

#include "tcpx/types.h"

namespace tcpx::soft {

Result<UnpackQueue> UnpackQueue::create(MemoryOps& memory, int device, std::byte* bounce_device_base) {
  TCPX_ASSIGN_OR_RETURN(auto meta, memory.allocate_mapped(device, sizeof(abi::NetUnpackMeta)));
  TCPX_ASSIGN_OR_RETURN(auto handle, memory.allocate_device(device, sizeof(abi::UnpackNetDeviceHandle)));
  const abi::UnpackNetDeviceHandle content = {
      .meta = reinterpret_cast<abi::NetUnpackMeta*>(meta.device()), .bounce_buf = bounce_device_base, .head = ~uint64_t{0}};
  TCPX_ASSIGN_OR_RETURN(auto lane, memory.make_copy_lane(device));
  TCPX_RETURN_IF_ERROR(lane->copy(handle.device(), &content, sizeof content));
  return UnpackQueue(std::move(meta), std::move(handle));
}

void UnpackQueue::open_slot(uint64_t sequence, abi::TcpxRequest& request) {
  const uint64_t index = sequence % kQueueDepth;
  uint64_t& count = meta().cnt[index];
  std::atomic_ref(count).store(0, std::memory_order_release);
  request.unpack_slot = {.active = true, .idx = index, .mem = meta().mem[index], .cnt = &count, .cnt_cache = 0, .recycling = {}};
}

void UnpackQueue::publish(uint64_t sequence, size_t count, abi::TcpxRequest& request) {
  request.unpack_slot.cnt_cache = count;
  // Pairs with the acquiring load of cnt by the poller of the queue: NCCL's kernel, after the proxy's tail tells it. The whole
  // list is visible before the count is.
  std::atomic_ref(meta().cnt[sequence % kQueueDepth]).store(count, std::memory_order_release);
}

abi::NetDeviceHandle UnpackQueue::device_handle() const {
  return {.net_device_type = abi::kNcclNetDeviceUnpack,
          .net_device_version = abi::kNcclNetDeviceUnpackVersion,
          .handle = handle_.device(),
          .size = sizeof(abi::UnpackNetDeviceHandle),
          .needs_proxy_progress = 1};
}

}  // namespace tcpx::soft
