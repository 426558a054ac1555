// Private layouts of GPUDirect-TCPX that its direct consumers read nevertheless: the request, its unpack slot, the metadata
// queue and the handle in device memory. No other file knows their offsets.
//
// Sources: google/nccl-plugin-gpudirecttcpx @ 4b8ea7f: src/work_queue.h (tcpxRequest), src/devcomm/unpack_defs1.h (unpackSlot);
// the 2026 state (91e8693) moved the slot from 56 to 64; NVIDIA/nccl: src/device/network/unpack/unpack_defs.h (netUnpackMeta,
// unpackNetDeviceHandle), v2.19 and later.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tcpx/types.h"

namespace tcpx::abi {

/// Scatter lists of one receive comm, in mapped pinned host memory.
struct NetUnpackMeta {
  Fragment mem[kQueueDepth][kMaxFragments];
  uint64_t cnt[kQueueDepth];
};
static_assert(sizeof(NetUnpackMeta) == 524416 && offsetof(NetUnpackMeta, cnt) == 524288);

/// Target of NetDeviceHandle::handle, in device memory.
struct UnpackNetDeviceHandle {
  NetUnpackMeta* meta;  ///< device address
  void* bounce_buf;     ///< device address; `src_off` counts from here
  uint64_t head;        ///< index of the last slice NCCL's kernel unpacked; 2^64-1 before the first
};
static_assert(sizeof(UnpackNetDeviceHandle) == 24);

struct UnpackSlot {
  bool active;
  uint64_t idx;   ///< queue index 0...15
  void* mem;      ///< host address of NetUnpackMeta::mem[idx]
  uint64_t* cnt;  ///< host address of NetUnpackMeta::cnt[idx]
  uint64_t cnt_cache;
  void* recycling[4];
};
static_assert(sizeof(UnpackSlot) == 72 && offsetof(UnpackSlot, idx) == 8 && offsetof(UnpackSlot, mem) == 16 &&
              offsetof(UnpackSlot, cnt) == 24 && offsetof(UnpackSlot, cnt_cache) == 32);

inline constexpr int kRequestOpSend = 0;
inline constexpr int kRequestOpRecv = 1;

/// The 2024 layout, which direct consumers mirror and our software plugin keeps.
struct TcpxRequest {
  void* comm;
  void* data;
  int32_t op;
  int32_t mem_type;
  int32_t next_sock_id;
  int32_t next_size;
  int32_t offset;
  int32_t size;  ///< receive: becomes the sender's total
  int32_t size_pending;
  int32_t gpu_mem_fd;
  int32_t gpu_mem_off;
  int32_t padding;
  UnpackSlot unpack_slot;
};
static_assert(sizeof(TcpxRequest) == 128 && offsetof(TcpxRequest, op) == 16 && offsetof(TcpxRequest, mem_type) == 20 &&
              offsetof(TcpxRequest, size) == 36 && offsetof(TcpxRequest, unpack_slot) == 56);

/// Offset of the unpack slot in each known layout.
inline constexpr size_t kUnpackSlotOffset2024 = 56;
inline constexpr size_t kUnpackSlotOffset2026 = 64;

}  // namespace tcpx::abi
