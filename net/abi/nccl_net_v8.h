// NCCL net plugin ABI, version 8. Mirrored from NVIDIA/nccl: src/include/plugin/net/net_v8.h, release 2.28. Against version 7 the
// properties gained `reg_is_global` after `ptr_support`, and reg_mr takes a size_t; every other call is the same.
#pragma once

#include <cstdint>

#include "net/abi/nccl_net_common.h"

namespace tcpx::abi {

inline constexpr char kNetPluginV8Symbol[] = "ncclNetPlugin_v8";

struct NetProperties_v8 {
  char* name;
  char* pci_path;  ///< may be NULL
  uint64_t guid;
  int ptr_support;  ///< mask of kNcclPtr...
  int reg_is_global;
  int speed;  ///< Mbit/s
  int port;
  float latency;  ///< us
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(NetProperties_v8) == 64 && offsetof(NetProperties_v8, speed) == 32 &&
              offsetof(NetProperties_v8, net_device_version) == 56);

struct NetTable_v8 {
  const char* name;
  int (*init)(NcclLogger logger);
  int (*devices)(int* count);
  int (*get_properties)(int dev, NetProperties_v8* properties);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm, NetDeviceHandle** send_dev_comm);
  int (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_dev_comm);
  int (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** dptr_mhandle);
  int (*irecv_consumed)(void* recv_comm, int n, void* request);
};
static_assert(sizeof(NetTable_v8) == 19 * 8 && offsetof(NetTable_v8, reg_mr) == 56 && offsetof(NetTable_v8, test) == 104 &&
              offsetof(NetTable_v8, irecv_consumed) == 144);

}  // namespace tcpx::abi
