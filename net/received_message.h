// Reads private data of an UNPACK plugin: the scatter list behind a finished receive, and the base of the bounce pool.
//
// The request layout is private to GPUDirect-TCPX and has changed once: the unpack slot began at byte 56 in 2024 and at 64 in
// 2026. Nothing in a request names its layout, but one relation between three fields of the slot holds in the right one and
// cannot hold in the other (28). A request in which it holds in neither is refused.
#pragma once

#include "base/memory_ops.h"
#include "net/net_plugin.h"
#include "tcpx/status.h"

namespace tcpx {

/// @param request host address of a receive request for which `test` has just said done; 128 bytes of it are readable.
/// @return kProtocol, logged, for an unknown layout, a request that is not a receive, a negative size, more than kMaxFragments
/// fragments, or fragments listed for host memory.
Result<ReceivedMessage> read_received_message(const void* request);

/// @param device_handle as accept filled it.
/// @param lane copies 24 bytes from device memory.
/// @return kProtocol, logged, when the handle is not that of UNPACK version 7 or names no 16-byte aligned pool; the error of
/// `lane`.
Result<BouncePool> read_bounce_pool(const DeviceHandleStorage& device_handle, const MemoryOps& memory, CopyLane& lane);

}  // namespace tcpx
