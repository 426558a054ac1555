// NCCL net plugin ABI, version 7. Mirrored from NVIDIA/nccl: src/include/plugin/net/net_v7.h, release 2.28.
#pragma once

#include <cstdint>

#include "net/abi/nccl_net_common.h"

namespace tcpx::abi {

inline constexpr char kNetPluginV7Symbol[] = "ncclNetPlugin_v7";

struct NetProperties_v7 {
  char* name;
  char* pci_path;  ///< may be NULL
  uint64_t guid;
  int ptr_support;  ///< mask of kNcclPtr...
  int speed;        ///< Mbit/s
  int port;
  float latency;  ///< us
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(NetProperties_v7) == 56 && offsetof(NetProperties_v7, ptr_support) == 24 &&
              offsetof(NetProperties_v7, net_device_version) == 52);

struct NetTable_v7 {
  const char* name;
  int (*init)(NcclLogger logger);
  int (*devices)(int* count);
  int (*get_properties)(int dev, NetProperties_v7* properties);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm, NetDeviceHandle** send_dev_comm);
  int (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_dev_comm);
  int (*reg_mr)(void* comm, void* data, int size, int type, void** mhandle);
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
static_assert(sizeof(NetTable_v7) == 19 * 8 && offsetof(NetTable_v7, reg_mr) == 56 && offsetof(NetTable_v7, test) == 104 &&
              offsetof(NetTable_v7, irecv_consumed) == 144);

}  // namespace tcpx::abi
