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

using NetTable_v7 = NetTable<7, NetProperties_v7, int>;
static_assert(sizeof(NetTable_v7) == 19 * 8 && offsetof(NetTable_v7, reg_mr) == 56 && offsetof(NetTable_v7, test) == 104 &&
              offsetof(NetTable_v7, irecv_consumed) == 144);

}  // namespace tcpx::abi
